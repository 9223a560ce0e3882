// Command attack is the program that the tests of package escape run inside
// each runtime: it tries what a hostile tool call would try, and prints what
// came of it, one JSON object a line.
//
//	attack KIND [NAME=VALUE…]
//
// It guarantees that a try which did not happen is never printed as refused:
// each line holds the kernel's own answer, or "reached". The same program run
// without walls is the proof that the attack works.
//
// What it does not do: judge. What an answer means is for the test to say. It
// does no harm outside of what its arguments name.
package main
