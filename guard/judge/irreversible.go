package judge

import "github.com/cordon-sandbox/cordon"

// Irreversible reports whether one of the effects cannot be taken back, or
// cannot be told. What is read, listed, connected to without sending,
// written (a transaction keeps what was there) or started by name can; an
// unknown kind or operation counts as one that cannot. Names of tools and
// arguments play no part.
func Irreversible(effects []cordon.Effect) bool {
	for i := range effects {
		if irreversible(&effects[i]) {
			return true
		}
	}
	return false
}

func irreversible(e *cordon.Effect) bool {
	switch e.Kind {
	case cordon.Read, cordon.List, cordon.Write, cordon.ReadEnv, cordon.SetEnv, cordon.Privilege:
		return false
	case cordon.Execute:
		return e.Origin == cordon.OriginDecoded || e.Origin == cordon.OriginNetwork
	case cordon.RunCode:
		// What code from the call or a file does stands in effects of its own.
		return e.Origin != cordon.OriginLiteral && e.Origin != cordon.OriginFile
	case cordon.Connect:
		return e.Sends || e.Op == "reverse_shell"
	case cordon.SQL:
		switch e.Op {
		case "read", "insert", "create", "session":
			return false
		}
		return true
	case cordon.Opaque, cordon.Delete, cordon.Send, cordon.Persist, cordon.Destroy, cordon.Administer:
		return true
	}
	return true
}
