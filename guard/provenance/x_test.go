package provenance

import (
	"fmt"
	"github.com/cordon-sandbox/cordon"
	"testing"
)

func TestX(t *testing.T) {
	ix := testIndex(t, 0)
	e := ix.Add(cordon.Chunk{Text: prose(1, 10<<10)})
	fmt.Println(len(e.grams), len(e.idents))
	fmt.Println(prose(1, 600))
	ix, segs := filled(t, 1<<20)
	n := 0
	for _, s := range segs {
		n += len(s)
	}
	fmt.Println(n, ix.grams.n, ix.idents.n, ix.grams.bytes(), ix.idents.bytes())
}
