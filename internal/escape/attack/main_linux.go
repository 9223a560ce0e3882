package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// line is one try. Got is "reached", the name of an errno, or "refused".
type line struct {
	Try  string `json:"try"`
	Got  string `json:"got"`
	Note string `json:"note,omitempty"`
}

// args are the NAME=VALUE arguments.
type args map[string]string

// kinds are the attacks by name.
var kinds = map[string]func(args){}

func init() {
	maps.Copy(kinds, fileKinds)
	maps.Copy(kinds, gitKinds)
	maps.Copy(kinds, kernelKinds)
	maps.Copy(kinds, networkKinds)
	maps.Copy(kinds, lifeKinds)
}

func main() {
	if len(os.Args) < 2 || kinds[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "attack: which kind (want one of %q)\n", slices.Sorted(maps.Keys(kinds)))
		os.Exit(2)
	}
	a := args{}
	for _, arg := range os.Args[2:] {
		name, value, _ := strings.Cut(arg, "=")
		a[name] = value
	}
	kinds[os.Args[1]](a)
}

func say(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		die(err)
	}
	os.Stdout.Write(append(text, '\n'))
}

func die(err error) {
	fmt.Fprintln(os.Stderr, "attack:", err)
	os.Exit(3)
}

// must is for what is no attack but has to work for one to be tried.
func must(err error) {
	if err != nil {
		die(err)
	}
}

// try prints what f came to. A nil error is the attack's success.
func try(name string, f func() error) {
	say(line{Try: name, Got: answer(f()), Note: noteOf})
	noteOf = ""
}

// noteOf is what the running try has to add.
var noteOf string

func note(format string, a ...any) { noteOf = fmt.Sprintf(format, a...) }

// errRefused is a refusal that is no errno: the thing is not what it is on
// the host.
var errRefused = errors.New("refused")

func answer(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "reached"
	case errors.As(err, &errno):
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
		return fmt.Sprintf("errno %d", int(errno))
	case errors.Is(err, errRefused):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, fs.ErrNotExist):
		return "ENOENT"
	}
	noteOf = err.Error()
	return "refused"
}

// refuseUnless is the answer of a look that found nothing of the host.
func refuseUnless(reached bool) error {
	if reached {
		return nil
	}
	return errRefused
}

// read reads a little of a file: opening alone may prove nothing.
func read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 1))
	if err == io.EOF {
		return errRefused
	}
	return err
}

// holds wants a word in a file.
func holds(path, word string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return refuseUnless(strings.Contains(string(text), word))
}

// await says that it is ready, and waits for the test's line.
func await() {
	say(line{Try: "ready", Got: "ready"})
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // an end of input is a word too
}

func call(nr, a, b, c uintptr) error {
	if _, _, errno := syscall.RawSyscall6(nr, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// closing turns an opened descriptor into the answer of opening it.
func closing(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}
