package main

// There are no foreign system calls to try here.
var machineKinds = map[string]func(args){}
