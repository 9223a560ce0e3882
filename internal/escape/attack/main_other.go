//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "attack: these are attacks on Linux")
	os.Exit(2)
}
