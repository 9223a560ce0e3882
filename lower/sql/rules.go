package sql

import (
	"net/url"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

func drop(s *stmt, i int) {
	next := s.tok(i + 1)
	if next.kind == word && guarded()[next.up()] {
		op := "sql_security"
		if next.is("ROLE", "USER", "LOGIN", "GROUP") {
			op = "sql_role"
		}
		s.admin(op, "drop "+strings.ToLower(next.up()))
		return
	}
	if s.tok(0).is("ALTER") && !droppableAt(s, i) {
		return // ALTER TABLE … DROP …, judged by alter
	}
	for j := i + 1; j < i+4; j++ {
		if d, ok := droppable()[s.tok(j).up()]; ok && s.tok(j).kind == word {
			k := s.skip(j+1, "TABLE", "VIEW", "WRAPPER", "CONCURRENTLY", "IF", "EXISTS", "BY")
			_, whole, _ := s.name(k)
			s.destroy(d.op, whole, d.doubtful)
			return
		}
		if !s.tok(j).is("TEMPORARY", "TEMP", "UNDO", "GLOBAL", "LOCAL") {
			break
		}
	}
	if s.starts(i) && next.kind == word && s.tok(i+2).ident() {
		s.destroy("drop_table", s.tok(i+2).text, true)
	}
}

func droppableAt(s *stmt, i int) bool {
	return s.tok(i+1).is("TABLE", "DATABASE", "SCHEMA")
}

func truncate(s *stmt, i int) {
	if s.tok(i+1).sym("(") || s.tok(i-1).is("BEFORE", "AFTER", "OR", "GRANT", "REVOKE", "DENY") || s.tok(i-1).sym(",") || s.tok(i-1).sym(".") {
		return
	}
	j := s.skip(i+1, "TABLE", "ONLY")
	if s.tok(j).is("FROM", "PARTITION") {
		return // a column of that name; a partition is alterParts'
	}
	if _, whole, _ := s.name(j); whole != "" && (j > i+1 || s.starts(i) || s.tok(j).kind != word || len(s.t) == j+1) {
		s.destroy("truncate_table", whole, false)
	}
}

func deletion(s *stmt, i int) {
	if s.tok(i-1).is("ON", "BEFORE", "AFTER", "OR", "FOR", "OF", "GRANT", "REVOKE", "DENY", "INSTEAD") || s.tok(i-1).sym(",") || s.tok(i-1).sym(".") {
		return
	}
	if s.tok(i-1).is("THEN") && !s.tok(i+1).is("FROM") {
		return // MERGE's, judged by merge
	}
	j := s.skip(i+1, "LOW_PRIORITY", "QUICK", "IGNORE")
	if s.tok(j).is("TOP") {
		for j++; j < len(s.t) && !s.tok(j).sym(")"); j++ {
			if s.tok(j-1).kind == number {
				break
			}
		}
		j = s.skip(j+1, "PERCENT")
	}
	if !s.tok(j).is("FROM") && !s.stacked(i) {
		return
	}
	j = s.skip(j, "FROM", "ONLY")
	if s.tok(j).sym("(") && s.tok(j-1).is("ONLY") {
		j++
	}
	_, whole, next := s.name(j)
	if whole == "" || s.tok(next).sym("(") {
		return
	}
	s.change(i, whole, "delete_unfiltered")
	s.system(whole)
}

func update(s *stmt, i int) {
	if s.tok(i-1).is("FOR", "ON", "DO", "KEY", "BEFORE", "AFTER", "OF", "OR", "INSTEAD", "GRANT", "REVOKE", "DENY", "NO") || s.tok(i-1).sym(",") || s.tok(i-1).sym(".") {
		return
	}
	j := s.skip(i+1, "LOW_PRIORITY", "IGNORE", "ONLY")
	if s.tok(j).is("OR") {
		j += 2
	}
	if s.tok(j).is("TOP") {
		for j < len(s.t) && !s.tok(j).sym(")") {
			j++
		}
		j++
	}
	_, whole, next := s.name(j)
	if whole == "" || strings.EqualFold(whole, "STATISTICS") {
		return
	}
	set := false
	for k, depth := next, 0; k < len(s.t) && !set; k++ {
		switch t := &s.t[k]; {
		case t.sym("("):
			depth++
		case t.sym(")"):
			depth--
		case depth > 0:
		case t.is("FROM") && s.tok(k-2).is("OF"): // FOR PORTION OF p FROM …
		case t.is("FROM", "WHERE", "SELECT"):
			return
		default:
			set = t.is("SET")
		}
	}
	if !set || s.tok(i-1).is("THEN") && s.tok(i+1).is("SET") {
		return
	}
	s.change(i, whole, "update_unfiltered")
	s.system(whole)
}

// change judges a DELETE or UPDATE by its filter.
func (s *stmt) change(i int, table, unfiltered string) {
	switch s.reach(i, table) {
	case narrow:
		s.add(cordon.Effect{Kind: cordon.SQL, Op: "change", Target: table})
	case seeming:
		s.destroy(unfiltered, table, true)
	default:
		s.destroy(unfiltered, table, false)
	}
}

func (s *stmt) has(up string) bool {
	for _, t := range s.t {
		if t.is(up) {
			return true
		}
	}
	return false
}

func merge(s *stmt, i int) {
	if !s.tok(i + 1).ident() {
		return
	}
	_, whole, _ := s.name(s.skip(i+1, "INTO", "ONLY"))
	matched := false
	for j := i; j < len(s.t); j++ {
		if s.t[j].is("DELETE") && s.tok(j-1).is("THEN") {
			s.destroy("delete_unfiltered", whole, true)
		}
		if s.t[j].is("ON") && !matched {
			matched = true
			if s.widthOf([][]token{s.t[j+1:]}, s.scopeOf(s.t[i:], whole)) == wide {
				s.destroy("update_unfiltered", whole, false)
			}
		}
	}
}

func insert(s *stmt, i int) {
	if !s.starts(i) {
		return
	}
	if s.tok(i + 1).is("OVERWRITE") {
		s.destroy("truncate_table", s.tok(s.skip(i+2, "TABLE", "INTO")).text, false)
	}
	if _, whole, _ := s.name(s.skip(i+1, "OR", "REPLACE", "IGNORE", "ABORT", "FAIL", "ROLLBACK", "INTO", "DELAYED", "LOW_PRIORITY", "HIGH_PRIORITY", "OVERWRITE", "TABLE")); whole != "" {
		s.add(cordon.Effect{Kind: cordon.SQL, Op: "insert", Target: whole})
		s.system(whole)
	}
}

// system notices changes of the server's own tables.
func (s *stmt) system(table string) {
	t := strings.ToLower(table)
	last := t[strings.LastIndexByte(t, '.')+1:]
	if systemTables()[t] || systemTables()[last] || strings.HasPrefix(t, "pg_catalog.") || strings.HasPrefix(t, "mysql.") {
		s.admin("sql_security", "change of "+t)
	}
}

// catalogue notices tables of secrets, read in any way.
func (s *stmt) catalogue(i int) {
	e, n := s.t[i].entry, s.t[i].text
	if e.pack != 0 && s.tok(i+1).sym(".") {
		s.invoke(e.pack, strings.ToLower(n), i+3)
	}
	switch {
	case e.secret:
		if !s.tok(i + 1).sym("(") {
			s.admin("credential", strings.ToLower(n))
		}
	case !e.check:
	case strings.EqualFold(n, "user") && s.tok(i-1).sym(".") && strings.EqualFold(s.tok(i-2).text, "mysql"), strings.EqualFold(n, "global_priv"):
		s.admin("credential", "mysql."+strings.ToLower(n))
	case s.t[i].is("FROM", "JOIN"):
		s.source(i + 1)
	case strings.EqualFold(n, "user") && s.inDatabase == "MYSQL" && s.tok(i-1).is("FROM", "JOIN", "INTO", "UPDATE", "TABLE"), strings.EqualFold(n, "authentication_string"):
		s.admin("credential", "mysql.user")
	case strings.EqualFold(n, "writable_schema"):
		s.admin("sql_security", "writable_schema")
	}
}

// source judges what stands behind FROM: DuckDB reads a file or URL that is
// given as text, T-SQL a table of another server by a name of four parts.
func (s *stmt) source(i int) {
	t := s.tok(i)
	switch {
	case t.kind == text && !s.tok(i-2).is("DISTINCT") && strings.ContainsAny(t.text, "/.") && s.queried(i-1):
		if strings.Contains(t.text, "://") {
			s.hosts(i)
			return
		}
		s.add(cordon.Effect{Kind: cordon.Read, Target: t.text, Dir: s.env.Dir, Expanded: true, Pattern: strings.Contains(t.text, "*")})
	case t.ident() && s.tok(i+1).sym("."):
		_, _, next := s.name(i)
		dots := 0
		for j := i; j < next; j++ {
			if s.t[j].sym(".") {
				dots++
			}
		}
		if dots >= 3 {
			s.add(cordon.Effect{Kind: cordon.Connect, Pattern: true, Op: "sql"})
		}
	}
}

// queried reports whether the FROM at token i is that of a query: not that of
// TRIM(… FROM …), nor of PREPARE or SHOW.
func (s *stmt) queried(i int) bool {
	depth := 0
	for j := i - 1; j >= 0 && j > i-64; j-- {
		switch t := &s.t[j]; {
		case t.sym(")"):
			depth++
		case t.sym("("):
			if depth--; depth < 0 {
				return false
			}
		case depth == 0 && t.is("SELECT"):
			return true
		}
	}
	return s.tok(0).is("SELECT", "WITH", "FROM", "CREATE", "INSERT", "DESCRIBE", "SUMMARIZE")
}

func alter(s *stmt, i int) {
	next := s.tok(i + 1)
	object := next.is("ROLE", "USER", "LOGIN", "SERVER", "DATABASE", "AUTHORIZATION", "TABLE", "ENDPOINT", "CREDENTIAL") && !s.tok(i-1).is("GRANT", "DENY", "REVOKE") && s.tok(i-1).kind != symbol
	if !s.starts(i) && !object || s.tok(i-1).is("OR") {
		return
	}
	_, whole, _ := s.name(s.skip(i+2, "IF", "EXISTS", "ONLY"))
	switch {
	case next.is("DATABASE") && (s.has("COLLATE") || s.has("CHARSET") || s.has("CHARACTER")):
	case next.is("ROLE", "USER", "LOGIN", "GROUP"):
		s.admin("sql_role", "alter "+strings.ToLower(next.up())+" "+whole)
	case next.is("SYSTEM", "DATABASE", "SERVER", "AUTHORIZATION", "INSTANCE", "ENDPOINT", "CREDENTIAL", "EVENT"):
		s.admin("sql_security", "alter "+strings.ToLower(next.up()))
		s.hosts(i)
	case next.is("DEFAULT"):
		s.admin("sql_grant", "default privileges")
	case next.is("POLICY", "EXTENSION", "SUBSCRIPTION", "PUBLICATION", "LANGUAGE"):
		s.admin("sql_security", "alter "+strings.ToLower(next.up()))
		s.hosts(i)
	}
	s.alterParts(i, whole)
}

func (s *stmt) alterParts(i int, whole string) {
	table := s.tok(i + 1).is("TABLE")
	s.work -= 3 * (len(s.t) - i) // each token is asked for many words
	for j := i + 2; j < len(s.t); j++ {
		t := &s.t[j]
		switch {
		case t.is("DROP") && table && s.tok(j+1).is("CONSTRAINT", "DEFAULT", "NOT", "EXPRESSION", "IDENTITY", "INDEX", "KEY", "FOREIGN", "CHECK", "PRIMARY"):
			if s.tok(j+1).is("DEFAULT", "NOT", "EXPRESSION", "IDENTITY", "INDEX", "KEY") {
				continue
			}
			s.destroy("drop_table", whole+" constraint", true)
		case t.is("DROP") && table && !s.tok(j-1).is("COLUMN") && (s.tok(j + 1).ident()):
			if s.tok(j - 1).is("ALTER") {
				continue
			}
			s.destroy("drop_table", whole+" column", !s.tok(j+1).is("PARTITION", "PARTITIONS"))
		case t.is("DISABLE") && (s.tok(j+1).is("ROW", "TRIGGER", "RULE", "POLICY")), t.is("NO") && s.tok(j+1).is("FORCE"), t.is("NOCHECK"):
			s.admin("sql_security", "protection of "+whole+" switched off")
		case t.is("DELETE") && table && s.tok(j+1).is("WHERE"):
			s.change(j, whole, "delete_unfiltered")
		case t.is("UPDATE") && table && s.tok(j+2).sym("="):
			s.change(j, whole, "update_unfiltered")
		case t.is("BLACKHOLE") && table, t.is("USING") && table && s.tok(j+1).kind != name && !s.tok(j+1).is("INDEX") && (s.tok(j+1).kind != word || s.tok(j+1).is("NULL")) && !s.tok(j+1).sym("("):
			s.destroy("drop_table", whole+" column", true)
		case t.is("SECURITY_BARRIER", "SECURITY_INVOKER") && s.tok(j+2).is("FALSE", "OFF"), t.is("LEAKPROOF") && !s.tok(j-1).is("NOT"):
			s.admin("sql_security", "protection of "+whole+" switched off")
		case t.is("OWNER") && s.tok(j+1).is("TO"):
			s.admin("sql_role", "owner of "+whole)
		case t.is("TRUNCATE", "DISCARD", "EXCHANGE") && table && s.tok(j+1).is("PARTITION", "TABLESPACE"):
			s.destroy("truncate_table", whole, false)
		case t.is("DEFINER") && s.tok(j-1).is("SECURITY"):
			s.admin("sql_security", "security definer")
		}
	}
}

func create(s *stmt, i int) {
	if s.tok(i-1).is("GRANT", "DENY", "REVOKE") || s.tok(i-1).sym(",") {
		return
	}
	j := s.skip(i+1, "OR", "REPLACE", "ALTER", "UNIQUE", "TRUSTED", "PROCEDURAL", "TEMP", "TEMPORARY", "GLOBAL", "LOCAL", "UNLOGGED", "CONSTRAINT", "DEFINER", "AGGREGATE", "VIRTUAL")
	what := s.tok(j)
	switch {
	case what.is("TABLE") && s.tok(i+2).is("REPLACE"):
		_, whole, _ := s.name(j + 1)
		s.destroy("drop_table", whole, false)
	case what.is("ROLE", "USER", "LOGIN", "GROUP") && !s.tok(j+1).is("MAPPING"):
		s.admin("sql_role", "create "+strings.ToLower(what.up()))
	case what.is("USER"), what.is("SERVER", "SUBSCRIPTION", "CREDENTIAL", "FOREIGN", "ENDPOINT"), what.is("DATABASE") && s.tok(j+1).is("LINK"), what.is("PUBLICATION", "CONNECTION"):
		s.connects(i)
	case what.is("TABLESPACE", "EXTERNAL"):
		s.hosts(i)
		s.opaque(callReasons[callFile], "")
	case what.is("TRANSFORM"):
		s.routine(i)
	case what.is("RULE", "EVENT", "POLICY", "ACCESS", "CERTIFICATE", "ASSEMBLY", "JOB", "DIRECTORY", "SECRET"):
		s.admin("sql_security", "create "+strings.ToLower(what.up()))
	case what.is("EXTENSION"):
		_, ext, _ := s.name(s.skip(j+1, "IF", "NOT", "EXISTS"))
		if hostileExtensions()[strings.ToLower(ext)] {
			s.opaque("extension "+ext+" reaches outside the database", "")
		}
	case what.is("LANGUAGE"):
		s.opaque("a procedural language is created", "")
	case what.is("FUNCTION", "PROCEDURE", "TRIGGER", "ROUTINE", "PACKAGE", "PROC"):
		s.routine(i)
	}
}

// routine reads a function: its language, whether it runs with its owner's
// rights, and its body, which a later statement may call.
func (s *stmt) routine(i int) {
	language := "SQL"
	for j := i; j < len(s.t); j++ {
		t := &s.t[j]
		switch {
		case t.is("LANGUAGE"):
			language = strings.ToUpper(s.tok(j + 1).text)
		case t.is("DEFINER") && s.tok(j-1).is("SECURITY"):
			s.admin("sql_security", "security definer")
		case t.is("SONAME"):
			s.opaque("loads native code into the database server", "")
		}
	}
	if !trustedLanguages[language] {
		s.opaque("a function in language "+strings.ToLower(language)+" runs outside SQL", "")
		return
	}
	for j := i; j < len(s.t); j++ {
		if s.t[j].is("AS") && s.tok(j+1).kind == text {
			s.text(s.t[j+1].text, s.depth+1)
		}
	}
}

// connects judges statements that make the server connect elsewhere.
func (s *stmt) connects(i int) {
	if !s.hosts(i) {
		s.add(cordon.Effect{Kind: cordon.Connect, Pattern: true, Op: "sql"})
	}
}

// hosts emits a connection for each host in the statement's constants: as
// host '…' options, host=… in a connection string, or a URL.
func (s *stmt) hosts(i int) (found bool) {
	for j := i; j < len(s.t); j++ {
		t := &s.t[j]
		if t.kind != text {
			continue
		}
		before := strings.ToLower(s.tok(j - 1).text)
		switch {
		case before == "host" || before == "hostaddr" || before == "hostname" || before == "server" || before == "master_host" || strings.HasSuffix(before, "_host"):
			found = s.connect(t.text) || found
		default:
			for _, h := range hostsIn(t.text) {
				found = s.connect(h) || found
			}
		}
		if before == "=" && (s.tok(j-2).is("MASTER_HOST", "SOURCE_HOST", "HOST", "LOCATION")) {
			found = s.connect(t.text) || found
		}
	}
	return found
}

func (s *stmt) connect(host string) bool {
	if host == "" || strings.HasPrefix(host, "/") {
		return false
	}
	s.add(cordon.Effect{Kind: cordon.Connect, Target: host, Op: "sql", Sends: true, Data: []string{"-"}})
	return true
}

// hostsIn finds hosts in a connection string or URL.
func hostsIn(c string) (hosts []string) {
	if u, err := url.Parse(c); err == nil && u.Scheme != "" && u.Host != "" {
		return []string{u.Host}
	}
	if rest, ok := strings.CutPrefix(c, `\\`); ok {
		host, _, _ := strings.Cut(rest, `\`)
		return []string{host}
	}
	for _, field := range strings.FieldsFunc(c, func(r rune) bool { return r == ' ' || r == ';' || r == '\n' || r == '\t' }) {
		key, v, ok := strings.Cut(field, "=")
		switch strings.ToLower(key) {
		case "host", "hostaddr", "server", "data source", "source", "address", "addr":
			if ok {
				hosts = append(hosts, strings.Trim(v, "'\""))
			}
		}
	}
	return hosts
}

func grant(s *stmt, i int) {
	if (s.stacked(i) || s.tok(i-1).ident() && s.tok(i+1).is("ALL", "SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE", "CONTROL", "ALTER", "VIEW", "IMPERSONATE", "CREATE") && (s.has("TO") || s.has("FROM"))) && s.tok(i+1).kind != symbol {
		s.admin("sql_grant", strings.ToLower(s.t[i].up()))
	}
}

func reassign(s *stmt, i int) {
	if s.tok(i + 1).is("OWNED") {
		s.admin("sql_role", "reassign owned")
	}
}

// hardSettings are those that take a protection away or run something.
var hardSettings = sync.OnceValue(func() map[string]bool {
	return words("ROLE ROW_SECURITY SESSION_REPLICATION_ROLE SESSION_PRELOAD_LIBRARIES LOCAL_PRELOAD_LIBRARIES SHARED_PRELOAD_LIBRARIES DYNAMIC_LIBRARY_PATH SQL_LOG_BIN GENERAL_LOG GENERAL_LOG_FILE LOG_STATEMENT IS_SUPERUSER LO_COMPAT_PRIVILEGES ALLOW_SYSTEM_TABLE_MODS IGNORE_SYSTEM_INDEXES ZERO_DAMAGED_PAGES CHECK_FUNCTION_BODIES_OFF ARCHIVE_COMMAND SECURE_FILE_PRIV LOCAL_INFILE PASSWORD LOG_BIN_TRUST_FUNCTION_CREATORS INIT_CONNECT SLOW_QUERY_LOG_FILE TRUSTWORTHY")
})

func set(s *stmt, i int) {
	if !s.starts(i) {
		return
	}
	j := s.skip(i+1, "LOCAL", "SESSION")
	t := s.tok(j)
	setting := strings.ToUpper(t.text)
	if t.kind == param && strings.HasPrefix(t.text, "@@") {
		setting = strings.ToUpper(strings.TrimLeft(t.text, "@"))
		if s.tok(j + 1).sym(".") {
			setting = s.tok(j + 2).up()
		}
	}
	switch {
	case (setting == "STANDARD_CONFORMING_STRINGS" || setting == "BACKSLASH_QUOTE") && !s.tok(j+2).is("ON", "TRUE", "SAFE_ENCODING"), setting == "SQL_MODE" && strings.Contains(s.tok(j+2).text, "ESCAPES"):
		s.admin("sql_security", "the way strings are quoted")
	case strings.HasSuffix(setting, "TRANSACTION_READ_ONLY") && s.tok(j+2).is("OFF", "FALSE", "NO", "DEFAULT") || setting == "CHARACTERISTICS" && s.has("WRITE"):
		s.admin("sql_security", "a session that only reads is let write")
	case hardSettings()[setting] && t.kind != text:
		s.admin("sql_security", "setting "+strings.ToLower(setting))
	case s.tok(i+1).is("SESSION") && t.is("AUTHORIZATION"):
		s.admin("sql_role", "session authorization")
	case t.is("GLOBAL", "PERSIST", "PERSIST_ONLY"), strings.HasPrefix(strings.ToLower(t.text), "@@global"):
		s.admin("sql_security", "server setting "+strings.ToLower(s.tok(j+1).text))
	case t.kind == param:
		s.assign(j)
	}
}

func reset(s *stmt, i int) {
	if s.starts(i) && (s.tok(i+1).is("ROLE") || s.tok(i+2).is("AUTHORIZATION")) {
		s.admin("sql_role", "back to the role of the login")
	}
	if s.starts(i) && s.tok(i+1).is("MASTER", "SLAVE", "REPLICA", "BINARY") {
		s.destroy("history", "replication logs", false)
	}
}

// assign remembers SET @x = constant, for PREPARE … FROM @x and EXEC(@x).
func (s *stmt) assign(i int) {
	if !s.tok(i+1).sym("=") && !s.tok(i+1).sym(":=") {
		return
	}
	if v, ok := fold(s.t[i+2:], s.vars); ok {
		if s.vars == nil {
			s.reader.vars = map[string]string{}
		}
		s.vars[strings.ToLower(s.t[i].text)] = v
	}
}

func copyData(s *stmt, i int) {
	if !s.starts(i) {
		return
	}
	for j := i + 1; j < len(s.t); j++ {
		t := &s.t[j]
		if !t.is("TO", "FROM") {
			continue
		}
		switch next := s.tok(j + 1); {
		case next.is("PROGRAM"):
			s.opaque("COPY starts a program on the database server", s.tok(j+2).text)
			s.program1(s.tok(j + 2).text)
		case next.kind == text:
			s.serverFile(next.text, t.is("TO"))
		}
	}
}

func (s *stmt) program1(cmd string) {
	if cmd != "" && s.env.Code != nil {
		for _, e := range s.env.Code(s.ctx, "shell", cmd, s.env.Dir) {
			s.add(e)
		}
	}
}

// serverFile is a file on the database server: whichever machine that is, the
// server reaches for it with its own rights.
func (s *stmt) serverFile(path string, write bool) {
	kind := cordon.Read
	if write {
		kind = cordon.Write
	}
	s.add(cordon.Effect{Kind: kind, Target: path, Dir: "/", Expanded: true})
	s.opaque(callReasons[callFile], "")
}

func outfile(s *stmt, i int) {
	if next := s.tok(i + 1); next.kind == text && s.tok(i-1).is("INTO") {
		s.serverFile(next.text, true)
	} else if s.t[i].is("UNLOAD") && next.sym("(") {
		s.connects(i)
	}
}

func infile(s *stmt, i int) {
	if next := s.tok(i + 1); next.kind == text {
		s.serverFile(next.text, false)
	}
}

func bulk(s *stmt, i int) {
	if s.tok(i+1).is("INSERT") || s.tok(i-1).sym("(") {
		s.opaque(callReasons[callFile], "")
	}
}

func do(s *stmt, i int) {
	if !s.starts(i) {
		return
	}
	for j := i + 1; j < len(s.t); j++ {
		switch t := &s.t[j]; {
		case t.is("LANGUAGE"):
			if j++; !trustedLanguages[strings.ToUpper(s.tok(j).text)] {
				s.opaque("a block in language "+s.tok(j).text+" runs outside SQL", "")
			}
		case t.kind == text:
			s.text(t.text, s.depth+1)
		default:
			return // MySQL's DO evaluates an expression
		}
	}
}

// execute follows dynamic statements: EXECUTE 'text', EXEC('text'), and
// T-SQL's EXEC procedure.
func execute(s *stmt, i int) {
	if s.tok(i-1).is("GRANT", "DENY", "REVOKE", "EACH", "ROW", "STATEMENT") || s.tok(i-1).sym(",") {
		return // the privilege, or a trigger's EXECUTE FUNCTION
	}
	j := s.skip(i+1, "IMMEDIATE")
	t := s.tok(j)
	if t.is("AS") && s.tok(j+1).is("LOGIN", "USER", "OWNER", "CALLER", "SELF") {
		if s.starts(i) && s.tok(j+1).is("LOGIN", "USER") {
			s.admin("sql_role", "execute as")
		}
		return
	}
	switch {
	case t.is("FUNCTION", "PROCEDURE"), t.kind == symbol && !t.sym("("):
		return
	case t.kind == text, t.kind == param, t.sym("("), s.tok(j + 1).sym("||"), j > i+1, s.depth > 0:
		s.dynamic(s.t[j:]) // in a routine's body the operand is an expression
	case t.ident():
		last, _, next := s.name(j)
		s.procedure(last, next)
	}
}

// dynamic reads the text that a statement would execute.
func (s *stmt) dynamic(t []token) {
	t = unwrap(cut(t))
	v, ok := fold(t, s.vars)
	if !ok {
		s.opaque("dynamic SQL whose text is not constant", "")
		return
	}
	s.text(v, s.depth+1)
}

// cut ends an expression at the keyword or separator behind it.
func cut(t []token) []token {
	depth := 0
	for i, tok := range t {
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			if depth--; depth < 0 {
				return t[:i]
			}
		case depth == 0 && (tok.is("USING", "INTO", "AT", "WITH", "LOOP") || tok.sym(";") || tok.sym(",")):
			return t[:i]
		}
	}
	return t
}

func prepare(s *stmt, i int) {
	if !s.starts(i) {
		return
	}
	if s.tok(i + 1).is("TRANSACTION") {
		return
	}
	for j := i + 1; j < len(s.t); j++ {
		if s.t[j].is("FROM") && j == i+2 {
			s.dynamic(s.t[j+1:])
		}
	}
}

func attach(s *stmt, i int) {
	if !s.starts(i) {
		return
	}
	if path, ok := fold(cutAs(s.t[s.skip(i+1, "DATABASE"):]), s.vars); ok {
		s.database(path)
		return
	}
	s.opaque("ATTACH opens a database whose path is not constant", "")
}

func cutAs(t []token) []token {
	for i, tok := range t {
		if tok.is("AS") || tok.sym("(") && i > 0 && t[i-1].kind != word {
			return t[:i]
		}
	}
	return t
}

// database is a SQLite file that is opened, and made where it is absent.
func (s *stmt) database(path string) {
	if path == "" || path == ":memory:" || strings.HasPrefix(path, "file::memory:") {
		s.add(cordon.Effect{Kind: cordon.SQL, Op: "session"})
		return
	}
	path, _, _ = strings.Cut(strings.TrimPrefix(path, "file:"), "?")
	s.add(cordon.Effect{Kind: cordon.Read, Target: path, Dir: s.env.Dir, Expanded: true})
	s.add(cordon.Effect{Kind: cordon.Write, Target: path, Dir: s.env.Dir, Expanded: true})
}

func vacuum(s *stmt, i int) {
	for j := i + 1; j < len(s.t) && s.starts(i); j++ {
		if s.t[j].is("INTO") {
			if path, ok := fold(s.t[j+1:], s.vars); ok {
				s.database(path)
			} else {
				s.opaque("VACUUM INTO a path that is not constant", "")
			}
		}
	}
}

func pragma(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("TEMP_STORE_DIRECTORY", "DATA_STORE_DIRECTORY", "TRUSTED_SCHEMA", "CELL_SIZE_CHECK", "HEXKEY", "KEY", "REKEY") {
		s.admin("sql_security", "pragma "+strings.ToLower(s.tok(i+1).text))
	}
}

func load(s *stmt, i int) {
	if s.starts(i) && (s.tok(i+1).kind == text || s.tok(i+1).is("EXTENSION")) {
		s.opaque(callReasons[callNative], s.tok(i+1).text)
	}
}

func install(s *stmt, i int) {
	if s.starts(i) && (s.tok(i+1).is("PLUGIN", "COMPONENT", "SONAME") || s.tok(i+1).ident() && i == 0) {
		s.opaque(callReasons[callNative], "")
	}
}

func securityLabel(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("LABEL") {
		s.admin("sql_security", "security label")
	}
}

func shutdown(s *stmt, i int) {
	if s.stacked(i) && (len(s.t) == i+1 || s.tok(i+1).is("WITH")) {
		s.destroy("power", "database server", false)
	}
}

func kill(s *stmt, i int) {
	if s.stacked(i) && (s.tok(i+1).kind == number || s.tok(i+1).is("QUERY", "CONNECTION", "STATS", "HARD", "SOFT") || s.tok(i+1).kind == param) {
		s.destroy("kill_all", "database sessions", true)
	}
}

func backup(s *stmt, i int) {
	if (i == 0 || s.tok(i-1).kind != symbol) && s.tok(i+1).is("DATABASE", "LOG", "CERTIFICATE", "TABLE", "FILELISTONLY", "HEADERONLY") {
		s.opaque(callReasons[callFile], "")
	}
}

func reconfigure(s *stmt, i int) {
	if s.stacked(i) {
		s.admin("sql_security", "server settings")
	}
}

func changeMaster(s *stmt, i int) {
	if s.tok(i+1).is("MASTER", "REPLICATION") {
		s.connects(i)
	}
}

func rename(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("USER") {
		s.admin("sql_role", "rename user")
	}
}

// export is DuckDB's EXPORT DATABASE '/directory' and BigQuery's EXPORT DATA.
func export(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("DATA") {
		s.connects(i)
	}
	if s.starts(i) && s.tok(i+1).is("DATABASE") {
		for j := i + 2; j < len(s.t) && j < i+5; j++ {
			if s.t[j].kind == text {
				s.add(cordon.Effect{Kind: cordon.Write, Target: s.t[j].text, Dir: s.env.Dir, Expanded: true, Recursive: true})
				return
			}
		}
	}
}

func flush(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("PRIVILEGES") {
		s.admin("sql_grant", "privileges loaded again")
	}
}

func binlog(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).kind == text {
		s.opaque("replays events of a binary log", "")
	}
}

func replication(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("SLAVE", "REPLICA", "GROUP_REPLICATION", "ALL") {
		s.admin("sql_security", "replication")
	}
}

func detach(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("TABLE", "DICTIONARY") {
		s.destroy("drop_table", s.tok(i+2).text, true)
	}
}

func setUser(s *stmt, i int) {
	if s.starts(i) && (s.tok(i+1).kind == text || i == 0) {
		s.admin("sql_role", "setuser")
	}
}

func dbcc(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("WRITEPAGE", "TRACEON", "TRACEOFF", "SHRINKDATABASE", "SHRINKFILE", "CLONEDATABASE", "ADDEXTENDEDPROC") {
		s.admin("sql_security", "dbcc "+strings.ToLower(s.tok(i+1).text))
	}
}

func importSchema(s *stmt, i int) {
	if s.starts(i) && s.tok(i+1).is("DATABASE") && s.tok(i+2).kind == text {
		s.add(cordon.Effect{Kind: cordon.Read, Target: s.tok(i + 2).text, Dir: s.env.Dir, Expanded: true, Recursive: true})
		s.opaque("the statements of a file are executed", "")
	}
	if s.tok(i + 1).is("FOREIGN") {
		s.add(cordon.Effect{Kind: cordon.Connect, Pattern: true, Op: "sql"})
	}
}

func purge(s *stmt, i int) {
	switch next := s.tok(i + 1); {
	case !s.starts(i):
	case next.is("BINARY", "MASTER"):
		s.destroy("history", "binary logs", false)
	case next.is("RECYCLEBIN", "DBA_RECYCLEBIN", "TABLE", "INDEX", "TABLESPACE"):
		s.destroy("drop_table", strings.ToLower(next.text), false)
	}
}
