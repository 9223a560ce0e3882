package sql

import "sync"

// What the verbs and names below mean is data: a line is added here, and its
// hit and near-miss in sql_test.go.

// verbs are the keywords that open a change, with what is looked at behind
// them. A keyword counts wherever it stands outside strings and comments.
func verbs() map[string]func(s *stmt, i int) {
	return map[string]func(*stmt, int){
		"DROP": drop, "TRUNCATE": truncate, "DELETE": deletion, "UPDATE": update, "MERGE": merge,
		"ALTER": alter, "CREATE": create, "GRANT": grant, "REVOKE": grant, "REASSIGN": reassign, "SET": set, "RESET": reset,
		"COPY": copyData, "OUTFILE": outfile, "DUMPFILE": outfile, "INFILE": infile, "BULK": bulk, "UNLOAD": outfile,
		"DO": do, "EXECUTE": execute, "EXEC": execute, "PREPARE": prepare,
		"ATTACH": attach, "VACUUM": vacuum, "PRAGMA": pragma, "LOAD": load, "INSTALL": install, "SECURITY": securityLabel,
		"SHUTDOWN": shutdown, "KILL": kill, "BACKUP": backup, "RESTORE": backup, "RECONFIGURE": reconfigure, "CHANGE": changeMaster,
		"RENAME": rename, "EXPORT": export, "FLUSH": flush, "BINLOG": binlog, "START": replication, "STOP": replication, "DETACH": detach, "SETUSER": setUser, "DBCC": dbcc,
		"INSERT": insert, "REPLACE": insert, "IMPORT": importSchema, "PURGE": purge, "DENY": grant,
	}
}

// entry is what the tables know of one word.
type entry struct {
	rule   func(s *stmt, i int) // as a verb
	call   callKind             // as a function or procedure
	secret bool                 // as a table
	// check: the word needs a look for another reason.
	check bool
	// tableCall: as a function it is one where a table would stand only.
	tableCall bool
	// pack is what the functions of a package do.
	pack callKind
}

// lexicon holds the words of all tables, so that the lexer looks each word up
// once.
var lexicon func() map[string]*entry

// Here, not in the declaration: the rules cut and look up text themselves.
func init() { lexicon = sync.OnceValue(newLexicon) }

func newLexicon() map[string]*entry {
	m := map[string]*entry{}
	entryOf := func(w string) *entry {
		if m[w] == nil {
			m[w] = &entry{}
		}
		return m[w]
	}
	for w, rule := range verbs() {
		entryOf(w).rule = rule
	}
	for w, kind := range calls() {
		entryOf(w).call = kind
	}
	for w := range secretTables() {
		entryOf(w).secret = true
	}
	for w, kind := range packages() {
		entryOf(w).pack = kind
	}
	for w := range tableCalls() {
		entryOf(w).tableCall = true
	}
	for _, w := range []string{"USER", "GLOBAL_PRIV", "WRITABLE_SCHEMA", "SET_CONFIG", "AUTHENTICATION_STRING", "FROM", "JOIN"} {
		entryOf(w).check = true
	}
	return m
}

// lookup finds a word of any case in the lexicon.
func lookup(w string) *entry {
	var buf [40]byte
	if len(w) > len(buf) {
		return nil
	}
	for i := range len(w) {
		c := w[i]
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		buf[i] = c
	}
	return lexicon()[string(buf[:len(w)])]
}

// droppable maps what DROP may name to the operation and whether it is only
// perhaps a loss.
var droppable = sync.OnceValue(func() map[string]struct {
	op       string
	doubtful bool
} {
	return map[string]struct {
		op       string
		doubtful bool
	}{
		"TABLE": {"drop_table", false}, "DATABASE": {"drop_database", false}, "SCHEMA": {"drop_database", false}, "TABLESPACE": {"drop_database", false},
		"FOREIGN": {"drop_table", true}, "VIEW": {"drop_table", true}, "MATERIALIZED": {"drop_table", true}, "INDEX": {"drop_table", true},
		"SEQUENCE": {"drop_table", true}, "TYPE": {"drop_table", true}, "DOMAIN": {"drop_table", true}, "FUNCTION": {"drop_table", true},
		"PROCEDURE": {"drop_table", true}, "ROUTINE": {"drop_table", true}, "AGGREGATE": {"drop_table", true}, "EXTENSION": {"drop_table", true},
		"PUBLICATION": {"drop_table", true}, "SUBSCRIPTION": {"drop_table", true}, "OWNED": {"drop_database", false}, "COLLATION": {"drop_table", true},
		"EVENT": {"drop_table", true}, "SYNONYM": {"drop_table", true}, "STATISTICS": {"drop_table", true}, "CAST": {"drop_table", true}, "OPERATOR": {"drop_table", true},
	}
})

// guarded are the objects whose loss or change takes a protection away.
var guarded = sync.OnceValue(func() map[string]bool {
	return words("ROLE USER LOGIN GROUP POLICY TRIGGER RULE SERVER CREDENTIAL CERTIFICATE AUDIT MASTER ACCESS")
})

// secretTables hold password hashes or connection secrets.
var secretTables = sync.OnceValue(func() map[string]bool {
	return map[string]bool{
		"PG_SHADOW": true, "PG_AUTHID": true, "PG_USER_MAPPING": true, "PG_USER_MAPPINGS": true, "PG_HBA_FILE_RULES": true,
		"PG_FILE_SETTINGS": true, "PG_LARGEOBJECT": true, "PG_SUBSCRIPTION": true, "SQL_LOGINS": true, "SYSLOGINS": true, "SYSXLOGINS": true,
		"LINKED_LOGINS": true, "DBA_USERS": true, "USER$": true,
	}
})

// systemTables may not be written to by a tool's statement.
var systemTables = sync.OnceValue(func() map[string]bool {
	return words("pg_authid pg_class pg_proc pg_database pg_attribute pg_auth_members pg_policy pg_trigger pg_settings pg_catalog sqlite_master sqlite_schema sqlite_sequence mysql.user mysql.db mysql.proc mysql.func mysql.plugin mysql.global_priv mysql.tables_priv pg_largeobject")
})

// callKind is what a call of a function or procedure means.
type callKind uint8

const (
	callFile    callKind = iota + 1 // reads or writes the server's files
	callProgram                     // starts a program
	callNetwork                     // connects; the arguments hold where to
	callCode                        // runs its text argument as SQL
	callNative                      // loads native code
	callAdmin                       // changes settings, roles, servers
	callStop                        // ends sessions or the server
	callSecret                      // gives away secrets
	callTable                       // gives the table that it is told the name of
)

var callReasons = map[callKind]string{
	callFile: "reads or writes files on the database server", callProgram: "starts a program on the database server",
	callNative: "loads native code into the database server", callNetwork: "makes the database server connect elsewhere",
}

// calls are functions and procedures by upper-case name, whatever schema they
// are qualified with.
var calls = sync.OnceValue(func() map[string]callKind {
	return map[string]callKind{
		// PostgreSQL
		"PG_READ_FILE": callFile, "PG_READ_BINARY_FILE": callFile, "PG_LS_DIR": callFile, "PG_STAT_FILE": callFile, "PG_LS_LOGDIR": callFile,
		"PG_LS_WALDIR": callFile, "PG_LS_TMPDIR": callFile, "PG_LS_ARCHIVE_STATUSDIR": callFile, "PG_FILE_WRITE": callFile, "PG_FILE_UNLINK": callFile,
		"PG_FILE_RENAME": callFile, "PG_FILE_SYNC": callFile, "PG_FILE_READ": callFile, "PG_LOGDIR_LS": callFile, "PG_CURRENT_LOGFILE": callFile,
		"LO_IMPORT": callFile, "LO_EXPORT": callFile, "LO_FROM_BYTEA": callFile, "LO_PUT": callFile, "PG_READ_SERVER_FILES": callFile,
		"PG_IMPORT_SYSTEM_COLLATIONS": callAdmin, "PG_DUMP_TO_FILE": callFile,
		"DBLINK": callNetwork, "DBLINK_CONNECT": callNetwork, "DBLINK_CONNECT_U": callNetwork, "DBLINK_EXEC": callNetwork, "DBLINK_OPEN": callNetwork,
		"DBLINK_SEND_QUERY": callNetwork, "DBLINK_GET_RESULT": callNetwork, "HTTP_GET": callNetwork, "HTTP_POST": callNetwork,
		"HTTP": callNetwork, "HTTP_PUT": callNetwork, "HTTP_DELETE": callNetwork, "NET_HTTP_GET": callNetwork, "PG_CREATE_LOGICAL_REPLICATION_SLOT": callAdmin,
		"QUERY_TO_XML": callCode, "QUERY_TO_XMLSCHEMA": callCode, "QUERY_TO_XML_AND_XMLSCHEMA": callCode, "CURSOR_TO_XML": callCode, "TS_STAT": callCode,
		"CROSSTAB": callCode, "PLAN_CHECK": callCode,
		"DATABASE_TO_XML": callSecret, "SCHEMA_TO_XML": callSecret,
		"PG_TERMINATE_BACKEND": callStop, "PG_CANCEL_BACKEND": callStop, "PG_PROMOTE": callStop, "PG_WAL_REPLAY_PAUSE": callStop, "PG_SWITCH_WAL": callStop,
		"PG_DROP_REPLICATION_SLOT": callStop, "PG_RELOAD_CONF": callAdmin, "PG_ROTATE_LOGFILE": callAdmin,
		"PG_LS_LOGICALMAPDIR": callFile, "PG_LS_LOGICALSNAPDIR": callFile, "PG_LS_REPLSLOTDIR": callFile, "PG_LS_SUMMARIESDIR": callFile,
		"PG_CREATE_PHYSICAL_REPLICATION_SLOT": callAdmin, "PG_LOGICAL_SLOT_GET_CHANGES": callAdmin, "PG_LOGICAL_SLOT_PEEK_CHANGES": callAdmin, "PG_LOGICAL_SLOT_GET_BINARY_CHANGES": callAdmin,
		"PG_BACKUP_START": callAdmin, "PG_BACKUP_STOP": callAdmin, "PG_START_BACKUP": callAdmin, "PG_STOP_BACKUP": callAdmin, "PG_WAL_REPLAY_RESUME": callAdmin, "PG_REPLICATION_ORIGIN_CREATE": callAdmin,
		"TABLE_TO_XML": callTable, "TABLE_TO_XML_AND_XMLSCHEMA": callTable, "DATABASE_TO_XML_AND_XMLSCHEMA": callSecret, "SCHEMA_TO_XML_AND_XMLSCHEMA": callSecret, "LO_UNLINK": callStop,
		"PG_EXECUTE_SERVER_PROGRAM": callProgram, "PLPERL_CALL_HANDLER": callNative, "PG_STAT_RESET": callAdmin, "PG_STAT_STATEMENTS_RESET": callAdmin,
		// MySQL
		"LOAD_FILE": callFile, "SYS_EXEC": callProgram, "SYS_EVAL": callProgram, "SYS_GET": callProgram, "SYS_SET": callProgram, "DO_SYSTEM": callProgram, "LIB_MYSQLUDF_SYS_INFO": callNative,
		// SQLite
		"LOAD_EXTENSION": callNative, "READFILE": callFile, "WRITEFILE": callFile, "EDIT": callProgram, "FTS3_TOKENIZER": callNative, "FSDIR": callFile, "LSDIR": callFile, "EVAL": callCode, "ZIPFILE": callFile, "SHELL": callProgram,
		// DuckDB, ClickHouse
		"READ_CSV": callFile, "READ_CSV_AUTO": callFile, "READ_PARQUET": callFile, "READ_TEXT": callFile, "READ_BLOB": callFile, "READ_JSON": callFile, "READ_JSON_AUTO": callFile, "READ_NDJSON": callFile, "GLOB": callFile, "PARQUET_SCAN": callFile, "FILE": callFile, "URL": callNetwork, "S3": callNetwork, "S3CLUSTER": callNetwork, "GCS": callNetwork, "HDFS": callNetwork, "REMOTE": callNetwork, "REMOTESECURE": callNetwork, "CLUSTER": callNetwork, "EXECUTABLE": callProgram,
		"MYSQL": callNetwork, "POSTGRESQL": callNetwork, "MONGODB": callNetwork, "JDBC": callNetwork, "ODBC": callNetwork, "AZUREBLOBSTORAGE": callNetwork, "DELTALAKE": callNetwork, "ICEBERG": callNetwork, "SQLITE": callFile,
		"POSTGRES_SCAN": callNetwork, "MYSQL_SCAN": callNetwork, "POSTGRES_QUERY": callNetwork, "MYSQL_QUERY": callNetwork, "SQLITE_SCAN": callFile, "READ_JSON_OBJECTS": callFile, "ICEBERG_SCAN": callFile, "DELTA_SCAN": callFile, "GETENV": callSecret, "DUCKDB_SECRETS": callSecret,
		// T-SQL
		"XP_CMDSHELL": callProgram, "XP_DIRTREE": callFile, "XP_FILEEXIST": callFile, "XP_SUBDIRS": callFile, "XP_CREATE_SUBDIR": callFile, "XP_DELETE_FILE": callFile, "XP_REGREAD": callAdmin, "XP_REGWRITE": callAdmin,
		"XP_REGDELETEKEY": callAdmin, "XP_REGDELETEVALUE": callAdmin, "XP_SERVICECONTROL": callStop, "XP_LOGINCONFIG": callSecret, "XP_ENUMGROUPS": callSecret, "SP_OACREATE": callProgram, "SP_OAMETHOD": callProgram, "SP_OAGETPROPERTY": callProgram,
		"SP_EXECUTESQL": callCode, "SP_SQLEXEC": callCode, "SP_PREPEXEC": callCode, "SP_PREPARE": callCode, "SP_CONFIGURE": callAdmin, "SP_ADDLOGIN": callAdmin, "SP_ADDUSER": callAdmin, "SP_ADDSRVROLEMEMBER": callAdmin, "SP_ADDROLEMEMBER": callAdmin, "SP_GRANTLOGIN": callAdmin, "SP_PASSWORD": callAdmin,
		"SP_ADDLINKEDSERVER": callNetwork, "SP_ADDLINKEDSRVLOGIN": callAdmin, "SP_SERVEROPTION": callAdmin, "SP_ADDEXTENDEDPROC": callNative, "SP_ADD_JOB": callAdmin, "SP_ADD_JOBSTEP": callProgram, "SP_START_JOB": callProgram, "SP_MAKEWEBTASK": callFile, "SP_EXECUTE_EXTERNAL_SCRIPT": callProgram,
		"SP_PROCOPTION": callAdmin, "SP_DBOPTION": callAdmin, "SP_DETACH_DB": callStop, "SP_DROPLOGIN": callAdmin, "SP_DROPUSER": callAdmin, "SP_ATTACH_DB": callFile, "SP_SEND_DBMAIL": callNetwork, "LOGINPROPERTY": callSecret, "PWDCOMPARE": callSecret, "SP_CHANGE_USERS_LOGIN": callAdmin, "SP_CHANGEDBOWNER": callAdmin, "SP_GRANTDBACCESS": callAdmin, "SP_UPDATE_JOB": callAdmin, "SP_MSFOREACHTABLE": callCode, "SP_MSFOREACHDB": callCode,
		"OPENROWSET": callNetwork, "OPENDATASOURCE": callNetwork, "OPENQUERY": callNetwork, "FN_GET_AUDIT_FILE": callFile, "FN_XE_FILE_TARGET_READ_FILE": callFile, "FN_TRACE_GETTABLE": callFile,
		// Oracle
		"HTTPURITYPE": callNetwork,
	}
})

// tableCalls are functions only where a table would stand; elsewhere the same
// names are columns and scalar functions.
var tableCalls = sync.OnceValue(func() map[string]bool {
	return words("FILE URL S3 GCS HDFS REMOTE REMOTESECURE CLUSTER EXECUTABLE GLOB MYSQL POSTGRESQL SQLITE MONGODB JDBC ODBC AZUREBLOBSTORAGE DELTALAKE ICEBERG")
})

// packages are Oracle's, by what their procedures do.
var packages = sync.OnceValue(func() map[string]callKind {
	return map[string]callKind{
		"UTL_HTTP": callNetwork, "UTL_TCP": callNetwork, "UTL_SMTP": callNetwork, "UTL_MAIL": callNetwork, "UTL_INADDR": callNetwork, "DBMS_LDAP": callNetwork,
		"UTL_FILE": callFile, "DBMS_ADVISOR": callFile, "DBMS_XSLPROCESSOR": callFile, "DBMS_LOB": callFile, "DBMS_SCHEDULER": callProgram, "DBMS_JOB": callProgram,
		"DBMS_JAVA": callProgram, "DBMS_SQL": callProgram, "DBMS_SYS_SQL": callProgram,
	}
})

// hostileExtensions give SQL a way to files, programs or hosts.
var hostileExtensions = sync.OnceValue(func() map[string]bool {
	return words("dblink postgres_fdw file_fdw adminpack plpython3u plpython2u plpythonu plperlu pltclu plsh plr pljavau pg_net http pgsql-http aws_s3 aws_lambda azure_storage pg_cron pg_background mysql_fdw oracle_fdw tds_fdw multicorn lo plv8u pg_execute pageinspect pg_read_file pg_surgery")
})

// trustedLanguages are those whose bodies are SQL-like and stay inside.
var trustedLanguages = words("SQL PLPGSQL")

// metaCommands are client commands (psql, mysql, sqlite3), by their name, that
// leave the database.
var metaShell = map[string]bool{`\!`: true, ".shell": true, ".system": true, "system": true, "host": true, "pager": true, "edit": true}

var metaFiles = map[string]string{
	`\i`: "read", `\ir`: "read", `\include`: "read", `\include_relative`: "read", `\.`: "read", "source": "read", "start": "read", ":r": "read", "tee": "write", "spool": "write", ":out": "write", ":error": "write", ":connect": "connect", ".trace": "write", ".session": "write", ".read": "read", ".import": "read", ".open": "write", ".restore": "read",
	`\o`: "write", `\out`: "write", `\w`: "write", `\write`: "write", `\T`: "write", ".output": "write", ".once": "write", ".save": "write", ".backup": "write", ".log": "write", ".clone": "write", ".dump": "",
	`\lo_import`: "read", `\lo_export`: "write", `\s`: "write", `\copy`: "copy", `\e`: "program", `\ef`: "program", `\ev`: "program", `\edit`: "program", ".load": "program", ".excel": "program", ".archive": "write", ".www": "program",
	`\g`: "pipe", `\gx`: "pipe", `\P`: "program", `\R`: "", `\gexec`: "code", `\setenv`: "program", `\c`: "connect", `\connect`: "connect", `\r`: "", `\u`: "", `\password`: "secret",
}
