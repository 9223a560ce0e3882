package docker

import (
	"os"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
)

func TestMain(m *testing.M) {
	inside.Main() // this process may be the first one inside a container
	os.Exit(run(m))
}
