package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

func TestAutoTakesTheStrongestThatOrdinaryProgramsRunUnder(t *testing.T) {
	strong := sandbox.Report{Runtime: "strong", Available: true}
	unfit := sandbox.Report{Runtime: "odd", Available: true, Unfit: "ls fails", Fix: "install a newer one"}
	absent := sandbox.Report{Runtime: "absent", Why: "it is not there", Fix: "install it"}
	weak := sandbox.Report{Runtime: "weak", Available: true}
	for _, row := range []struct {
		name    string
		reports []sandbox.Report
		want    string
	}{
		{"the first", []sandbox.Report{strong, weak}, "strong"},
		{"the next where the first is absent", []sandbox.Report{absent, weak}, "weak"},
		{"the next where ordinary programs fail under the first", []sandbox.Report{unfit, weak}, "weak"},
		{"none where none is fit", []sandbox.Report{absent, unfit}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printProbes(&out, row.reports); err != nil {
				t.Fatal(err)
			}
			_, chosen, _ := strings.Cut(out.String(), "--runtime auto would take: ")
			if strings.TrimSpace(chosen) != row.want {
				t.Errorf("%q (want %q)", chosen, row.want)
			}
			for _, r := range row.reports {
				if !strings.Contains(out.String(), r.Why+r.Unfit) || !strings.Contains(out.String(), r.Fix) {
					t.Errorf("%+v is not all told:\n%s", r, out.String())
				}
			}
		})
	}
}
