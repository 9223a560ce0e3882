package javascript

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestZZCases(t *testing.T) {
	f, err := os.Open("/work/shared/cases/javascript.jsonl")
	if err != nil {
		t.Skip()
	}
	sc := bufio.NewScanner(f)
	bad := 0
	for sc.Scan() {
		var c struct {
			ID, Want, Why string
			Call          struct{ Args struct{ Code string } }
		}
		json.Unmarshal(sc.Bytes(), &c)
		src := strings.ReplaceAll(strings.ReplaceAll(c.Call.Args.Code, "{HOME}", testHome), "{WS}", testDir)
		h := harmful(lowered(t, src))
		if (len(h) > 0) != (c.Want != "allowed") {
			bad++
			fmt.Println("WRONG", c.ID, c.Want, c.Why, h, src)
		} else if testing.Verbose() {
			fmt.Println("ok", c.ID, c.Want, h)
		}
	}
	fmt.Println("wrong", bad)
}
func TestZZSrc(t *testing.T) {
	b, err := os.ReadFile("/tmp/jsx/src.js")
	if err != nil {
		t.Skip()
	}
	for _, s := range strings.Split(string(b), "\n====\n") {
		fmt.Printf("--- %s\n", s)
		for _, e := range lowered(t, s) {
			fmt.Printf("   %s doubt=%v via=%v sends=%v %v\n", describe(e), e.Doubtful, e.Via, e.Sends, e.Data)
		}
	}
}
