// Package egresspeer holds Cordon's egress proxy against smokescreen, a proxy
// with the same purpose: what each admits and refuses of the same bytes, and
// what each costs, over the same origins in one process.
//
// It has tests and benchmarks only, and is in a module of its own so that the
// peer's dependencies stay out of the product's.
//
// What it does not show: how either fares over a real network, where the time
// of a tunnel is the round trips; and what the peer does in configurations
// other than a list of hosts that is enforced.
package egresspeer
