package caps

import (
	"fmt"
	"math"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// Micros is an amount of money in millionths of a US dollar. Whole numbers
// add up exactly, so that exactly the limit is reached and not nearly.
type Micros int64

// MicrosFromUSD converts dollars. A positive amount never becomes zero, so
// that very small costs are not free. NaN, infinities, negative amounts and
// amounts beyond nine billion dollars are errors.
func MicrosFromUSD(usd float64) (Micros, error) {
	m := math.Round(usd * 1e6)
	if !(usd >= 0) || m > math.MaxInt64/1024 {
		return 0, fmt.Errorf("caps: cost %v US dollars (want 0 or more, finite)", usd)
	}
	if usd > 0 && m == 0 {
		m = 1
	}
	return Micros(m), nil
}

// USD is the amount in dollars, for people and for audit rows.
func (m Micros) USD() float64 { return float64(m) / 1e6 }

// Limits are the caps of one run. Every field must be above zero: a cap of
// zero or less refuses every call, it never means "unlimited". The zero
// value therefore refuses.
type Limits struct {
	ToolCalls    int64
	Exec         time.Duration
	BytesWritten int64
	Cost         Micros
}

// NewLimits reads caps in the units of the configuration: calls, seconds,
// bytes and dollars. It errs on a value that is zero, negative, not finite
// or too large to count.
func NewLimits(toolCalls int64, execSeconds float64, bytesWritten int64, costUSD float64) (Limits, error) {
	ns := execSeconds * float64(time.Second)
	if !(ns > 0) || ns > math.MaxInt64/2 {
		return Limits{}, fmt.Errorf("caps: exec_seconds %v (want above 0, at most 146 years)", execSeconds)
	}
	cost, err := MicrosFromUSD(costUSD)
	if err != nil {
		return Limits{}, fmt.Errorf("caps: cost_usd %v (want above 0, finite)", costUSD)
	}
	l := Limits{ToolCalls: toolCalls, Exec: time.Duration(ns), BytesWritten: bytesWritten, Cost: cost}
	return l, l.Validate()
}

// Validate errs on the first cap that is zero or negative, naming it.
func (l Limits) Validate() error {
	for d, n := range l.amounts() {
		if n <= 0 {
			return fmt.Errorf("caps: %s %d (want above 0)", Dimension(d), n)
		}
	}
	return nil
}

func (l Limits) amounts() amounts {
	return amounts{l.ToolCalls, int64(l.Exec), l.BytesWritten, int64(l.Cost)}
}

// Usage is what a run has used so far, reservations included.
type Usage struct {
	ToolCalls    int64
	Exec         time.Duration
	BytesWritten int64
	Cost         Micros
}

func (u Usage) amounts() amounts {
	return amounts{u.ToolCalls, int64(u.Exec), u.BytesWritten, int64(u.Cost)}
}

func usageOf(a amounts) Usage {
	return Usage{ToolCalls: a[ToolCalls], Exec: time.Duration(a[ExecSeconds]), BytesWritten: a[BytesWritten], Cost: Micros(a[CostUSD])}
}

// Want is what one call asks for before it runs. The call itself always
// counts as one tool call.
type Want struct {
	// Key names the logical call, so that two doors that see the same call
	// count it once. It must tell calls apart that are not the same: a
	// client's call ID alone is too little, as IDs start again with each
	// connection; join it with the hash of the arguments. Empty: counted on
	// its own.
	Key   string
	Exec  time.Duration
	Bytes int64
	Cost  Micros
}

func (w Want) amounts() amounts {
	return amounts{1, int64(w.Exec), w.Bytes, int64(w.Cost)}
}

func actualAmounts(u cordon.Usage) (amounts, error) {
	cost, err := MicrosFromUSD(u.CostUSD)
	if err != nil {
		return amounts{}, err
	}
	if u.Exec < 0 || u.BytesWritten < 0 {
		return amounts{}, fmt.Errorf("caps: settled with %v and %d bytes (want 0 or more)", u.Exec, u.BytesWritten)
	}
	return amounts{1, int64(u.Exec), u.BytesWritten, int64(cost)}, nil
}

// Dimension is one of the four things that are capped.
type Dimension uint8

const (
	ToolCalls Dimension = iota
	ExecSeconds
	BytesWritten
	CostUSD
	dimensions
)

var dimensionNames = [dimensions]string{"tool_calls", "exec_seconds", "bytes_written", "cost_usd"}

// String spells the dimension as the configuration does: "tool_calls",
// "exec_seconds", "bytes_written", "cost_usd".
func (d Dimension) String() string {
	if d < dimensions {
		return dimensionNames[d]
	}
	return fmt.Sprintf("dimension(%d)", uint8(d))
}

// amounts are indexed by Dimension; times in nanoseconds, money in micros.
type amounts [dimensions]int64

// Over is one cap that a call would exceed. Units: calls, nanoseconds,
// bytes, micro-dollars.
type Over struct {
	Dimension         Dimension
	Limit, Used, Want int64
}

// Exceeded says why a call was refused: every cap that it would exceed. A
// refused call was not counted.
type Exceeded struct{ Over []Over }

// Findings are the refusals in the guard's vocabulary: phase C,
// cap_exceeded, blocked, never a kill.
func (e *Exceeded) Findings() []cordon.Finding {
	out := make([]cordon.Finding, 0, len(e.Over))
	for _, o := range e.Over {
		out = append(out, cordon.Finding{
			Phase:     cordon.PhaseTripwire,
			Violation: cordon.CapExceeded,
			Rule:      "caps." + o.Dimension.String(),
			Outcome:   cordon.Blocked,
			Detail:    o.sentence(),
		})
	}
	return out
}

func (o Over) sentence() string {
	switch {
	case o.Limit <= 0:
		return fmt.Sprintf("The run's cap %s is %s, which admits nothing.", o.Dimension, o.amount(o.Limit))
	case o.Want < 0:
		return fmt.Sprintf("The call asks for %s of %s, which is no amount.", o.amount(o.Want), o.Dimension)
	}
	return fmt.Sprintf("The run has used %s of %s of its cap %s, and the call asks for %s more.",
		o.amount(o.Used), o.amount(o.Limit), o.Dimension, o.amount(o.Want))
}

func (o Over) amount(n int64) string {
	switch o.Dimension {
	case ExecSeconds:
		return time.Duration(n).String()
	case CostUSD:
		return fmt.Sprintf("%.6f", Micros(n).USD())
	}
	return fmt.Sprint(n)
}
