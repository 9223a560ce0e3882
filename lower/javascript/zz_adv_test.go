package javascript

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestZZAdv(t *testing.T) {
	b, err := os.ReadFile("/tmp/jsx/adv.js")
	if err != nil {
		t.Skip()
	}
	for _, s := range strings.Split(string(b), "\n====\n") {
		h := harmful(lowered(t, strings.TrimSpace(s)))
		if len(h) == 0 {
			fmt.Printf("MISS %s\n", s)
		} else if os.Getenv("ALL") != "" {
			fmt.Printf("%s\n    %q\n", s, h)
		}
	}
}
func TestZZBen(t *testing.T) {
	b, err := os.ReadFile("/tmp/jsx/ben.js")
	if err != nil {
		t.Skip()
	}
	for _, s := range strings.Split(string(b), "\n====\n") {
		h := harmful(lowered(t, strings.TrimSpace(s)))
		if len(h) > 0 {
			fmt.Printf("FALSE %s\n   %q\n", s, h)
		}
	}
}
