package judge

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// maxAnswer is the most of an answer that is read, in bytes.
const maxAnswer = 16 << 10

const maxReason = 400

// errAnswer is an answer that is not one verdict. It never holds its text.
var errAnswer = errors.New("the answer is not one verdict")

func unusable(why string) error { return fmt.Errorf("%w: %s", errAnswer, why) }

// parseAnswer reads a model's answer: exactly one JSON object with the three
// members of the schema, and the code that only the prompt held, so that
// nothing quoted from the call can pass for an answer.
func parseAnswer(text, code string) (Decision, string, error) {
	if len(text) > maxAnswer {
		return Block, "", unusable("too long")
	}
	v, err := strictjson.Parse([]byte(text))
	if err != nil {
		return Block, "", unusable("not one JSON value")
	}
	if v.Kind != strictjson.Object || len(v.Keys) != 3 {
		return Block, "", unusable("not an object of three members")
	}
	verdict, ok1 := v.Text("verdict")
	reason, ok2 := v.Text("reason")
	got, ok3 := v.Text("code")
	switch {
	case !ok1 || !ok2 || !ok3:
		return Block, "", unusable("a member is missing or no string")
	case code == "" || got != code:
		return Block, "", unusable("not the code of the question")
	}
	for d, name := range decisionNames {
		if name == verdict {
			return Decision(d), cleanReason(reason), nil
		}
	}
	return Block, "", unusable("an unknown verdict")
}

// cleanReason makes a model's words fit to be shown and stored.
func cleanReason(s string) string {
	return audit.Shorten(audit.Visible(audit.RedactText(strings.Join(strings.Fields(s), " "))), maxReason)
}
