// Package sqlite keeps the audit in one SQLite file: the default store.
//
// What it guarantees: when Record, Kill, Release, OpenRun, SetPin, ApprovePin,
// AddProposal, MoveProposal or AddChunks return without error the change
// survives kill -9 and, as far as the disk honours fsync, the loss of power
// (WAL with synchronous=FULL).
// Several processes may use the file at once; their violations make one
// chain. A run that one process killed is killed for all: KillGeneration
// changes in every process. Count and AddUsage lose at most what was said
// within audit.FlushInterval before a crash; the loss of power may take what
// was said since the last of the changes above too.
// A kill that the database does not take (held, full, read-only) is kept in
// the file beside it, and counts. A file that was moved, removed or replaced under an open store is an error
// at the next change and when kills are read.
//
// Close leaves the write-ahead log beside the file: a copy of the file alone
// may lack the last changes.
//
// What it does not stop: who may write the file may rewrite it (see package
// audit). The file belongs outside of what an agent can reach; this package
// only sees to it that other users cannot write it, and that it is not a
// link that others laid. It needs a local file system: WAL does not work on
// network file systems, and Open says so.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the database/sql driver

	"github.com/cordon-sandbox/cordon/audit"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	applicationID = 1129464902 // as in the first migration
	schemaVersion = 2          // the user_version that the last migration sets
)

// busyTimeout is how long a statement waits for other processes.
const busyTimeout = 5 * time.Second

// inode tells files apart.
type inode struct{ dev, ino uint64 }

// Store is an audit.Store in a SQLite file.
type Store struct {
	path   string
	busy   time.Duration
	file   inode   // what was opened
	db     *sql.DB // readers; see Close for why they must not be able to write
	w      *sql.DB // one connection, used by the writer goroutine alone
	kills  *killFile
	reqs   chan *request
	closed chan struct{}
	done   chan struct{}
	once   sync.Once
	end    error // why Close failed

	// wake starts the time to the next flush; flushes are those asked for.
	wake    chan struct{}
	flushes chan chan error

	mu      sync.Mutex // guards pending, flushing
	pending batch
	// flushing is what is being written: it is no longer pending and cannot
	// be read from the database yet.
	flushing batch
	// commit is held for writing while a flush commits and forgets what it
	// wrote, and for reading while Usage adds both sides up.
	commit sync.RWMutex
}

var _ audit.Store = (*Store)(nil)

// Open opens the store in the file at path, and makes it where it is absent:
// the directory for its owner alone, and the file too. Errors are *Error.
func Open(ctx context.Context, path string) (*Store, error) {
	return openWaiting(ctx, path, busyTimeout)
}

func openWaiting(ctx context.Context, path string, busy time.Duration) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, wrap("open", path, err)
	}
	if err := prepareFile(path); err != nil {
		return nil, err
	}
	s := &Store{
		path: path, busy: busy, db: readers(path, busy), w: writers(path, busy),
		reqs: make(chan *request, 1024), closed: make(chan struct{}), done: make(chan struct{}),
		wake: make(chan struct{}, 1), flushes: make(chan chan error),
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(wrap("open", path, err), s.db.Close(), s.w.Close())
	}
	go s.write()
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	if s.file, err = inodeOf(s.path); err != nil {
		return err
	}
	v, err := s.version(ctx, s.db)
	if err != nil {
		return err
	}
	if s.kills, err = openKillFile(s.path + killSuffix); err != nil {
		return err
	}
	if v != schemaVersion {
		err = s.migrate(ctx)
	}
	if err != nil {
		return errors.Join(err, s.kills.close())
	}
	return nil
}

func readers(path string, busy time.Duration) *sql.DB {
	return pool(path, 4, busy, url.Values{"mode": {"ro"}, "_pragma": {"trusted_schema(0)"}})
}

func writers(path string, busy time.Duration) *sql.DB {
	pragmas := []string{"synchronous(FULL)", "foreign_keys(1)", "trusted_schema(0)"}
	if runtime.GOOS == "darwin" { // nowhere else it says anything
		pragmas = append(pragmas, "fullfsync(1)", "checkpoint_fullfsync(1)")
	}
	return pool(path, 1, busy, url.Values{"_pragma": pragmas})
}

// pool opens nothing yet.
func pool(path string, conns int, busy time.Duration, q url.Values) *sql.DB {
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()))
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		panic("audit/sqlite: the driver is not registered: " + err.Error()) // it is imported above
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

// version reads the schema version, 0 for a new file, and refuses files that
// are not ours or are from the future. It costs one short read. The table
// of goose comes before our mark while another process migrates.
func (s *Store) version(ctx context.Context, db querier) (int, error) {
	var v, app, tables int
	const q = `SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema WHERE tbl_name <> 'goose_db_version' AND tbl_name NOT LIKE 'sqlite_%')
		FROM pragma_user_version, pragma_application_id`
	if err := db.QueryRowContext(ctx, q).Scan(&v, &app, &tables); err != nil {
		return 0, err
	}
	switch {
	case app != applicationID && (app != 0 || v != 0 || tables != 0):
		return 0, &Error{Op: "open", Path: s.path, Err: ErrNotCordon, Hint: "choose another file with --db"}
	case v > schemaVersion:
		return 0, &Error{Op: "open", Path: s.path, Err: fmt.Errorf("%w: it has %d, known is %d", ErrNewerSchema, v, schemaVersion),
			Hint: "update cordon, or choose another file with --db"}
	}
	return v, nil
}

// migrate brings the file to the present schema. The lock keeps processes
// that start at once from migrating twice.
func (s *Store) migrate(ctx context.Context) error {
	fd := int(s.kills.f.Fd())
	if err := flock(fd, unix.LOCK_EX); err != nil {
		return err
	}
	defer func() { _ = flock(fd, unix.LOCK_UN) }() // closing releases it too
	v, err := s.version(ctx, s.w)
	if err != nil || v == schemaVersion {
		return err
	}
	var mode string
	if err := s.w.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return &Error{Op: "open", Path: s.path, Err: fmt.Errorf("journal mode is %q (want wal)", mode),
			Hint: "the file system cannot hold the database; choose a file on a local disk with --db"}
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, s.w, sub, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

func flock(fd, how int) error {
	for {
		err := unix.Flock(fd, how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func inodeOf(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, fmt.Errorf("stat: %w", err)
	}
	return inode{uint64(st.Dev), st.Ino}, nil
}

// standing is an error where the path leads to another file than the one that
// is open: what is stored there is lost to everyone else, and what others
// store, kills among it, is not seen here.
func (s *Store) standing() error {
	if at, err := inodeOf(s.path); err == nil && at == s.file {
		return nil
	}
	return &Error{Op: "use", Path: s.path, Err: ErrReplaced, Hint: "put it back, or start cordon anew"}
}

// Path is the absolute path of the database file.
func (s *Store) Path() string { return s.path }

// KillGeneration implements audit.Store.
func (s *Store) KillGeneration() uint64 { return s.kills.generation() }

// Close writes what Count and AddUsage hold, and releases the file. An error
// says that some of it was lost.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closed)
		<-s.done
		// Whoever closes a database last writes its log back, with two syncs
		// and two more for the next one who begins a log, unless it cannot
		// write: so that the readers are closed last, and the log is written
		// back when it is long enough.
		s.end = s.fail("close", errors.Join(s.end, s.w.Close(), s.db.Close(), s.kills.close()))
	})
	return s.end
}
