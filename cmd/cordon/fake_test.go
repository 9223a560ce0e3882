package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"

	_ "modernc.org/sqlite"
)

// fakeMCP is an MCP server with a reader, a writer and a tool whose
// description is $DESCRIPTION. It answers each call with its arguments.
func fakeMCP() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments json.RawMessage
			}
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil || m.ID == nil {
			continue
		}
		switch m.Method {
		case "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"read_file","description":"reads"},{"name":"write_file","description":"writes"},{"name":"lookup","description":%q}]}}`+"\n", m.ID, os.Getenv("DESCRIPTION"))
		case "tools/call":
			text, _ := json.Marshal("ran " + m.Params.Name + " " + string(m.Params.Arguments))
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", m.ID, text)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
		}
	}
}

// flipByte changes one letter of a stored row behind Cordon's back.
func flipByte() {
	db, err := sql.Open("sqlite", os.Args[1])
	if err == nil {
		_, err = db.Exec(`UPDATE sandbox_violations SET violation_detail = 'X' || substr(violation_detail, 2) WHERE seq = 1`)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
