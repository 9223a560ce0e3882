package native

import (
	"context"
	"errors"
	"os"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

const probeProgram, probeArg = "/run/cordon-probe", "look"

func lookAround() int { return 0 }

func (r *Runtime) Probe(context.Context) sandbox.Report { return sandbox.Report{} }

func (l *launcher) explain(err error) error {
	var e *stageError
	_ = errors.As(err, &e)
	_ = os.Args
	return err
}
