package sqloracle

import (
	"testing"

	"github.com/pingcap/tidb/pkg/parser"
	"github.com/pingcap/tidb/pkg/parser/ast"
	_ "github.com/pingcap/tidb/pkg/parser/test_driver"
)

func TestClassesAgreeWithAParserOfMySQL(t *testing.T) {
	compare(t, my, mysqlClasses)
}

func mysqlClasses(t *testing.T, src string) []string {
	nodes, _, err := parser.New().Parse(src, "", "")
	if err != nil {
		t.Fatalf("%q: the parser of MySQL refuses it: %v", src, err)
	}
	var classes []string
	for _, n := range nodes {
		classes = append(classes, mysqlClass(n)...)
	}
	return classes
}

func mysqlClass(n ast.StmtNode) []string {
	switch n := n.(type) {
	case *ast.SelectStmt:
		if n.SelectIntoOpt != nil {
			return []string{"file"}
		}
		return []string{"read"}
	case *ast.InsertStmt:
		return []string{"insert"}
	case *ast.UpdateStmt:
		if n.Where == nil {
			return []string{"update_unfiltered"}
		}
		return []string{"change"}
	case *ast.DeleteStmt:
		if n.Where == nil {
			return []string{"delete_unfiltered"}
		}
		return []string{"change"}
	case *ast.LoadDataStmt:
		return []string{"file"}
	case *ast.DropTableStmt, *ast.DropDatabaseStmt:
		return []string{"drop"}
	case *ast.TruncateTableStmt:
		return []string{"truncate"}
	case *ast.AlterTableStmt:
		for _, spec := range n.Specs {
			if spec.Tp == ast.AlterTableDropColumn {
				return []string{"drop"}
			}
		}
	case *ast.GrantStmt, *ast.RevokeStmt, *ast.GrantRoleStmt, *ast.CreateUserStmt, *ast.AlterUserStmt, *ast.DropUserStmt:
		return []string{"admin"}
	}
	return nil
}
