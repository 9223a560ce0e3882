//go:build unix && !linux && !darwin

package relay

import "errors"

// peer: there is no daemon where the peer cannot be told.
func peer(int) (uid, pid int, err error) {
	return 0, 0, errors.New("not on this system")
}

func sameProgram(int) error { return errors.New("daemon: not on this system") }

// ThisBuild fails: there is no daemon on this system.
func ThisBuild() (string, error) { return "", errors.New("daemon: not on this system") }
