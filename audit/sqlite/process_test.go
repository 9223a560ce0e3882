package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/audit"
)

// The test binary runs itself as other processes: CORDON_TEST_CHILD names
// what it does, CORDON_TEST_DB the file.
func TestMain(m *testing.M) {
	if what := os.Getenv("CORDON_TEST_CHILD"); what != "" {
		if err := child(what, os.Getenv("CORDON_TEST_DB")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const childRows = 50

func child(what, path string) error {
	ctx := context.Background()
	s, err := Open(ctx, path)
	if err != nil {
		return err
	}
	name := fmt.Sprint("p", os.Getpid())
	switch what {
	case "record":
		for i := range childRows {
			s.AddUsage(audit.Usage{RunID: "shared", ToolCalls: 1})
			err := s.Record(ctx, runRow(fmt.Sprintf("%s-%d", name, i%7)), []audit.Violation{blocked("Bash", name)})
			if err != nil {
				return err
			}
		}
	case "die":
		// Says so after each row that is stored, until it is killed.
		for i := 1; ; i++ {
			v := blocked("Bash", name)
			v.Killed = i == 1
			if err := s.Record(ctx, runRow(name), []audit.Violation{v}); err != nil {
				return err
			}
			fmt.Println(i)
		}
	case "kill":
		return s.Kill(ctx, audit.Kill{RunID: "victim", Rule: "child"}) // without Close: a crash right after
	}
	return s.Close()
}

func start(t *testing.T, what, path string) (*exec.Cmd, io.Reader) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), "CORDON_TEST_CHILD="+what, "CORDON_TEST_DB="+path)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, out
}

func TestFourProcessesThatStartAtOnceMakeOneChain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db") // absent: they also race to make it
	var cs []*exec.Cmd
	for range 4 {
		c, _ := start(t, "record", path)
		cs = append(cs, c)
	}
	for _, c := range cs {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	s := open(t, path)
	if r := verify(t, s); !r.OK || r.Rows != 4*childRows {
		t.Errorf("%+v", r)
	}
	if u, err := s.Usage(t.Context(), "shared"); err != nil || u.ToolCalls != 4*childRows {
		t.Error(u, err)
	}
}

func TestG1KillMinusNineAfterRecordLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	c, out := start(t, "die", path)
	var said int64
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &said); err != nil {
			t.Fatal(err)
		}
		if said == 20 {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatal("the child did not die by the signal:", err)
	}
	s := open(t, path)
	r := verify(t, s)
	// One more may have been stored and not been said yet.
	if !r.OK || said < 20 || r.Rows < said || r.Rows > said+1 {
		t.Errorf("%d rows said, %+v", said, r)
	}
	if ks, err := s.Kills(t.Context()); err != nil || len(ks) != 1 {
		t.Error(ks, err)
	}
}

func TestG4AKillByAnotherProcessIsSeen(t *testing.T) {
	s := fresh(t)
	before := s.KillGeneration()
	if again := s.KillGeneration(); again != before && s.kills.noise.Load() > 0 {
		t.Error("the generation cannot be read")
	}
	c, _ := start(t, "kill", s.Path())
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if s.KillGeneration() == before {
		t.Error("the generation did not change")
	}
	if ks, err := s.Kills(t.Context()); err != nil || len(ks) != 1 || ks[0].RunID != "victim" {
		t.Error(ks, err)
	}
}
