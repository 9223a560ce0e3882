// Package cgroup finds a place for control groups on a Linux host, of version
// 1 or 2, makes one for each sandbox and sets its caps: memory without swap,
// processes, processors.
//
// It guarantees that a group is made below the supervisor's own, so that
// bounds put on that bound the sandbox too; that what could not be capped has
// its reason in the Group; and that groups whose supervisor was killed are
// removed by the next Find.
//
// What it does not do: fall back. Where there is no group the runtime decides
// what stands in, and what is reported.
package cgroup
