package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cordon-sandbox/cordon/audit"
)

func TestDefaultPathIsInTheStateDirectory(t *testing.T) {
	t.Setenv("HOME", "/home/bob")
	for env, want := range map[string]string{
		"":       "/home/bob/.local/state/cordon/cordon.db",
		"rel":    "/home/bob/.local/state/cordon/cordon.db",
		"/state": "/state/cordon/cordon.db",
	} {
		t.Setenv("XDG_STATE_HOME", env)
		if got, err := DefaultPath(); err != nil || got != want {
			t.Error(got, err)
		}
	}
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "cordon", "odd name?#%41.db")
	s := open(t, path)
	record(t, s, runRow("r"), blocked("a", "b"))
	for p, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600, path + "-wal": 0o600, path + killSuffix: 0o600} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != want {
			t.Error(p, fi, err)
		}
	}
}

func TestOpenRefusesAndSaysWhatToDo(t *testing.T) {
	write := func(content string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, p string) {
			if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(p, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(stmt string) func(*testing.T, string) {
		return func(t *testing.T, p string) {
			db, err := sql.Open("sqlite", p)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(stmt); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name  string
		lay   func(*testing.T, string)
		is    error
		words []string
	}{
		{"a file that is no database", write(strings.Repeat("not a database ", 100), 0o600), nil, []string{"damaged", "move it away"}},
		{"a database of something else", run("CREATE TABLE t (x)"), ErrNotCordon, []string{"--db"}},
		{"a newer schema", run("PRAGMA application_id = 1129464902; PRAGMA user_version = 99"), ErrNewerSchema, []string{"99", "update cordon"}},
		{"a file that others may write", write("", 0o666), ErrUnsafe, []string{"chmod 600"}},
		{"a directory", func(t *testing.T, p string) {
			if err := os.Mkdir(p, 0o700); err != nil {
				t.Fatal(err)
			}
		}, ErrUnsafe, []string{"not a regular file"}},
		{"a journal that is a link", func(t *testing.T, p string) {
			write("", 0o600)(t, p)
			if err := os.Symlink("/nowhere", p+"-wal"); err != nil {
				t.Fatal(err)
			}
		}, ErrUnsafe, []string{"-wal", "remove it"}},
		{"a side file that is a pipe", func(t *testing.T, p string) {
			if err := unix.Mkfifo(p+killSuffix, 0o600); err != nil {
				t.Fatal(err)
			}
		}, ErrUnsafe, []string{killSuffix, "remove it"}},
		{"a link that leads nowhere", func(t *testing.T, p string) {
			if err := os.Symlink(p+".gone", p); err != nil {
				t.Fatal(err)
			}
		}, os.ErrNotExist, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			tt.lay(t, path)
			s, err := Open(t.Context(), path)
			if err == nil {
				t.Fatal("opened", s.Close())
			}
			var own *Error
			if !errors.As(err, &own) || own.Op != "open" || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v", err)
			}
			for _, w := range append(tt.words, path) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
		})
	}
}

func TestADirectoryThatCannotBeMadeOrWrittenIsNamed(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	paths := []string{filepath.Join(plain, "x.db")}
	if os.Geteuid() != 0 { // modes do not hold root
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Join(closed, "x.db"), filepath.Join(closed, "y", "x.db"))
	}
	for _, p := range paths {
		_, err := Open(t.Context(), p)
		if err == nil || !strings.Contains(err.Error(), p) || !strings.Contains(err.Error(), "--db") {
			t.Error(err)
		}
	}
}

func TestOpenFollowsOnesOwnLinkAndNobodyElses(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "a.db"), filepath.Join(dir, "l.db")
	record(t, open(t, target), runRow("r"), blocked("a", "b"))
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if vs := violations(t, open(t, link), audit.Filter{}); len(vs) != 1 {
		t.Error(vs)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a link away")
	}
	if err := os.Lchown(link, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), link); !errors.Is(err, ErrUnsafe) {
		t.Error("another user's link:", err)
	}
	if err := os.Lchown(link, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(target, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), link); !errors.Is(err, ErrUnsafe) {
		t.Error("own link to another user's file:", err)
	}
}

func TestG4AKillThatTheDatabaseDoesNotTakeCountsAllTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.db")
	s, err := openWaiting(t.Context(), path, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	hold, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	hold.SetMaxOpenConns(1)
	if _, err := hold.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	other := open(t, path)
	before := other.KillGeneration()
	for _, id := range []string{"r1", "r2"} {
		kill := audit.Kill{RunID: id, SessionID: "s\n-{}", Rule: "cred.ssh_key"}
		if err := s.Kill(t.Context(), kill); err == nil || !strings.Contains(err.Error(), "another process holds") {
			t.Fatalf("the database took it: %v", err)
		}
	}
	if other.KillGeneration() == before {
		t.Error("other processes are not told")
	}
	if _, err := hold.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	// After a restart, and beside kills that were stored.
	again := open(t, path)
	if err := again.Kill(t.Context(), audit.Kill{RunID: "r3"}); err != nil {
		t.Fatal(err)
	}
	killed := func() (ids []string) {
		t.Helper()
		ks, err := again.Kills(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range ks {
			ids = append(ids, k.RunID)
		}
		slices.Sort(ids)
		return ids
	}
	if got := killed(); !slices.Equal(got, []string{"r1", "r2", "r3"}) {
		t.Fatalf("killed are %q", got)
	}
	if ks, err := again.Kills(t.Context()); err != nil || ks[1].SessionID != "s\n-{}" || ks[1].Rule != "cred.ssh_key" || ks[1].At.IsZero() {
		t.Errorf("the note lost something: %+v, %v", ks, err)
	}
	before = other.KillGeneration()
	if err := again.Release(t.Context(), "r1", "kim", "a test"); err != nil {
		t.Fatal(err)
	}
	if got := killed(); !slices.Equal(got, []string{"r2", "r3"}) || other.KillGeneration() == before {
		t.Errorf("after a release killed are %q", got)
	}
	if err := again.Release(t.Context(), "r1", "kim", "a test"); !errors.Is(err, audit.ErrNotKilled) {
		t.Errorf("a second release: %v", err)
	}
	// Killed once more, in both places, one release ends both.
	if err := again.Kill(t.Context(), audit.Kill{RunID: "r2"}); err != nil {
		t.Fatal(err)
	}
	if err := again.Release(t.Context(), "r2", "kim", "a test"); err != nil {
		t.Fatal(err)
	}
	if got := killed(); !slices.Equal(got, []string{"r3"}) {
		t.Errorf("after the last release killed are %q", got)
	}
}

func TestOfANoteThatWasCutShortTheRunIsTaken(t *testing.T) {
	s := fresh(t)
	if err := os.WriteFile(s.Path()+killSuffix, []byte("..\n!{\"run_id\":\"r1\",\"tenant_id\":\"\",\"ses\n!{\"run_id\":\"r2\"}\n."), 0o600); err != nil {
		t.Fatal(err)
	}
	ks, err := s.Kills(t.Context())
	if err != nil || len(ks) != 2 || ks[0].RunID != "r1" || ks[1].RunID != "r2" {
		t.Errorf("%+v, %v", ks, err)
	}
}

func TestASideFileThatCannotBeReadIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"half a note":      "\n!{\"run_id\":\"r",
		"a note of no run": "\n!{}\n",
		"too large":        strings.Repeat(".", maxNotes+1),
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t)
			if err := os.WriteFile(s.Path()+killSuffix, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if ks, err := s.Kills(t.Context()); err == nil {
				t.Errorf("kills are %v", ks)
			}
		})
	}
}

// A full disk rolls a transaction back by itself, so that rolling it back is an
// error too. What comes after must be an error, not a crash, and the store must
// work again when there is room.
func TestATransactionThatIsAlreadyOverIsAnErrorAndNotTheEnd(t *testing.T) {
	s := fresh(t)
	record(t, s, runRow("r"), blocked("a", "b"))
	full := errors.New("the disk is full")
	for range 3 {
		err := s.submit(t.Context(), "record", func(tx *tx) error {
			if err := tx.exec(tx.ctx, "ROLLBACK"); err != nil {
				t.Errorf("the transaction was over before: %v", err)
			}
			return full
		})
		if !errors.Is(err, full) {
			t.Fatalf("error %v", err)
		}
		record(t, s, runRow("r"), blocked("a", "b"))
	}
	if r := verify(t, s); !r.OK || r.Rows != 4 {
		t.Errorf("%+v", r)
	}
}

func TestALockedDatabaseIsAnErrorThatSaysSo(t *testing.T) {
	s, err := openWaiting(t.Context(), filepath.Join(t.TempDir(), "audit.db"), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, err := sql.Open("sqlite", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	err = s.Record(t.Context(), runRow("r"), []audit.Violation{blocked("a", "b")})
	if err == nil || !strings.Contains(err.Error(), "another process holds the database") {
		t.Error(err)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	record(t, s, runRow("r"), blocked("a", "b"))
}
