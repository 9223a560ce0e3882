//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/cordon-sandbox/cordon"
)

// undo says that calls cannot be taken back here, where that was asked for.
func undo(c *core) (cordon.Guard, error) {
	if c.config.Transactions() {
		return nil, fmt.Errorf("transactions around tools need Linux; this is %s (unset ATOM_DMM_LEVEL5_ENABLED)", runtime.GOOS)
	}
	return c.guard, nil
}
