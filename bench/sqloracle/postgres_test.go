package sqloracle

import (
	"encoding/json"
	"testing"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

func TestClassesAgreeWithPostgreSQLsParser(t *testing.T) {
	compare(t, pg, postgresClasses)
}

func postgresClasses(t *testing.T, src string) []string {
	tree, err := pgquery.ParseToJSON(src)
	if err != nil {
		t.Fatalf("%q: PostgreSQL's parser refuses it: %v", src, err)
	}
	var doc any
	if err := json.Unmarshal([]byte(tree), &doc); err != nil {
		t.Fatal(err)
	}
	var classes []string
	walk(doc, func(kind string, body map[string]any) {
		if c := postgresClass(kind, body); c != "" {
			classes = append(classes, c)
		}
	})
	return classes
}

// walk visits every object of a parse tree with the name that it stands under.
func walk(v any, visit func(kind string, body map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			walk(e, visit)
		}
	case map[string]any:
		for kind, e := range v {
			if body, ok := e.(map[string]any); ok {
				visit(kind, body)
			}
			walk(e, visit)
		}
	}
}

func postgresClass(kind string, body map[string]any) string {
	switch kind {
	case "SelectStmt":
		return "read"
	case "InsertStmt":
		return "insert"
	case "UpdateStmt", "DeleteStmt":
		if body["whereClause"] != nil {
			return "change"
		}
		return map[string]string{"UpdateStmt": "update_unfiltered", "DeleteStmt": "delete_unfiltered"}[kind]
	case "MergeWhenClause":
		if body["commandType"] == "CMD_DELETE" {
			return "delete_unfiltered"
		}
	case "DropStmt", "DropdbStmt", "DropOwnedStmt":
		return "drop"
	case "AlterTableCmd":
		if body["subtype"] == "AT_DropColumn" {
			return "drop"
		}
	case "TruncateStmt":
		return "truncate"
	case "GrantStmt", "GrantRoleStmt", "CreateRoleStmt", "AlterRoleStmt", "AlterDefaultPrivilegesStmt", "DropRoleStmt":
		return "admin"
	case "CopyStmt":
		if body["filename"] != nil {
			return "file"
		}
		if body["is_from"] == true {
			return "insert"
		}
	}
	return ""
}
