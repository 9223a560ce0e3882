package mcp

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func init() {
	// Cordon as a process of its own, which can be killed.
	if os.Getenv(fakeEnv) == "cordon" {
		err := Serve(context.Background(), Config{
			Guard: nothing{}, Command: []string{os.Args[0]}, Env: append(os.Environ(), fakeEnv+"=deaf"),
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		})
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func TestTheServerEndsWhenCordonIsKilledBySIGKILL(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fakeEnv+"=cordon")
	in, err := cmd.StdinPipe() // held open: the server is deaf to its end anyway
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err) // the server says that it is up
	}
	pid := childOf(t, cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitGone(t, pid)
}

// childOf finds the one child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, task := range tasks {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + task.Name() + "/children")
		if err == nil {
			all = append(append(all, b...), ' ')
		}
	}
	words := strings.Fields(string(bytes.TrimSpace(all)))
	if len(words) != 1 {
		t.Fatalf("children %q", all)
	}
	n, err := strconv.Atoi(words[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
