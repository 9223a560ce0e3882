package gvisor

import (
	"os"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
)

// asProgram is set by tests that show this binary inside.
var asProgram = func() {}

func TestMain(m *testing.M) {
	Main()        // this process may be the builder of a root
	inside.Main() // or the first one inside
	asProgram()
	os.Exit(m.Run())
}
