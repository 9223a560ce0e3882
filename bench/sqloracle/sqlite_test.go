package sqloracle

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
	lower "github.com/cordon-sandbox/cordon/lower/sql"
	_ "modernc.org/sqlite"
)

const schema = `
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, active INTEGER NOT NULL DEFAULT 1, data TEXT, created_at TEXT, deleted_at TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER, state TEXT);
CREATE VIEW names AS SELECT name FROM users;
INSERT INTO users (id, name, age, active, created_at, deleted_at) VALUES
 (1, 'Ann', 31, 1, '2020-05-01', NULL), (2, 'Bob', 25, 0, '2022-01-09', '2024-02-02'), (3, 'Cem', 58, 1, '2023-11-30', NULL), (4, 'Dee', 31, 0, '2024-03-03', NULL), (57, 'Eve Adams', 20, 1, '2019-08-08', '2023-01-01');
INSERT INTO orders VALUES (10, 2, 'paid'), (11, 2, 'open'), (12, 57, 'paid')`

func open(t *testing.T) *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestClassesAgreeWithWhatSQLiteDoes(t *testing.T) {
	compare(t, lite, sqliteClasses)
}

// sqliteClasses runs src and tells from the tables what it did.
func sqliteClasses(t *testing.T, src string) []string {
	db := open(t)
	before := stateOf(t, db)
	if _, err := db.Exec(src); err != nil {
		t.Fatalf("%q: SQLite refuses it: %v", src, err)
	}
	after := stateOf(t, db)
	return before.changedTo(after)
}

// state is the objects, the users by id, and the columns.
type state struct {
	objects, columns map[string]bool
	users            map[int]string
}

func stateOf(t *testing.T, db *sql.DB) state {
	s := state{objects: map[string]bool{}, columns: map[string]bool{}, users: map[int]string{}}
	each(t, db, "SELECT rootpage || type || 'x' FROM sqlite_schema WHERE type IN ('table', 'view')", func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		s.objects[name] = true
		return err
	})
	for _, table := range []string{"users", "people"} {
		each(t, db, "SELECT name FROM pragma_table_info('"+table+"')", func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			s.columns[name] = true
			return err
		})
	}
	if !s.columns["name"] {
		return s
	}
	table := "users"
	if _, err := db.Exec("SELECT 1 FROM people"); err == nil {
		table = "people"
	}
	each(t, db, "SELECT id, name || '|' || coalesce(age, '') FROM "+table, func(rows *sql.Rows) error {
		var id int
		var row string
		err := rows.Scan(&id, &row)
		s.users[id] = row
		return err
	})
	return s
}

func each(t *testing.T, db *sql.DB, query string, scan func(*sql.Rows) error) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func (s state) changedTo(after state) (classes []string) {
	for _, m := range []struct{ was, is map[string]bool }{{s.objects, after.objects}, {s.columns, after.columns}} {
		for name := range m.was {
			if !m.is[name] {
				return []string{"drop"}
			}
		}
	}
	gone, changed, new := 0, 0, 0
	for id, row := range s.users {
		switch is, ok := after.users[id]; {
		case !ok:
			gone++
		case is != row:
			changed++
		}
	}
	for id := range after.users {
		if _, ok := s.users[id]; !ok {
			new++
		}
	}
	switch {
	case new > 0 || changed == 1 && after.users[1] == "upserted|31":
		classes = append(classes, "insert")
	case gone == len(s.users):
		classes = append(classes, "delete_unfiltered")
	case changed == len(s.users):
		classes = append(classes, "update_unfiltered")
	case gone+changed > 0:
		classes = append(classes, "change")
	}
	return classes
}

// Where SQLite deletes every row, the condition must be seen to leave none
// out; where it does not, it may at most seem so.
func TestConditionsAgreeWithWhatSQLiteDeletes(t *testing.T) {
	var wide, narrow int
	for _, cond := range conditions {
		src := "DELETE FROM users WHERE " + cond
		db := open(t)
		var args []any
		if strings.Contains(cond, "?1") {
			args = append(args, 3)
		}
		res, err := db.Exec(src, args...)
		if err != nil {
			t.Errorf("%q: SQLite refuses it: %v", src, err)
			continue
		}
		n, err := res.RowsAffected()
		if err != nil {
			t.Fatal(err)
		}
		every := n == 5
		certain, said := verdict(t, src)
		if every {
			wide++
		} else {
			narrow++
		}
		if every && said == "change" && !dataOnly[cond] {
			t.Errorf("%q deletes every row, and is taken for filtered", src)
		}
		if !every && certain {
			t.Errorf("%q deletes %d rows of 5, and is taken for unfiltered", src, n)
		}
	}
	if wide < 60 || narrow < 40 {
		t.Errorf("%d conditions pass every row and %d do not: too few of a kind", wide, narrow)
	}
}

// dataOnly are conditions that all of the five rows happen to pass.
var dataOnly = map[string]bool{"age > 0": true}

func verdict(t *testing.T, src string) (certain bool, said string) {
	for _, e := range lower.Lower(t.Context(), src, lower.Env{}) {
		switch {
		case e.Kind == cordon.Destroy:
			return !e.Doubtful, e.Op
		case e.Kind == cordon.SQL:
			said = e.Op
		default:
			said = fmt.Sprint(e.Kind)
		}
	}
	return false, said
}
