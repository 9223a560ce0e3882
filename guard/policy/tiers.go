package policy

import (
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// Profiles by name.
const (
	Atom   = "atom"
	Coding = "coding"
)

// Profiles lists the known profiles.
func Profiles() []string { return []string{Atom, Coding} }

// scratch is below /tmp so that a run's leftovers go with the machine.
const scratch = "/tmp/agent"

// runMark stands for the run's ID in a grant, and in what is hashed. No run
// can have this ID, and no configured path can hold a NUL.
const runMark = "\x00run"

func runRoot(runID string) string { return scratch + "/" + runID }

// rights is a row of the tier table: what a tier adds to the one below it.
type rights struct {
	every  bool
	groups []string
	// read and write are roots; "{workspace}" is the run's.
	read, write []string
	connect     bool
}

const inWorkspace = "{workspace}"

// tierTable gives each profile its four rows, student first.
func tierTable(profile string) [4]rights {
	if profile == Atom {
		return [4]rights{
			cordon.Student:    {groups: []string{ReadOnly}, read: []string{inWorkspace + "/data"}},
			cordon.Intern:     {groups: []string{Memory, ProductivityRead}, write: []string{runRoot(runMark)}},
			cordon.Supervised: {groups: []string{Browser, ProductivityWrite}, write: []string{inWorkspace + "/data/uploads"}, connect: true},
			cordon.Autonomous: {every: true, connect: true},
		}
	}
	return [4]rights{
		// What programs are made of: without it a student could not even read
		// the header that an error message names.
		cordon.Student: {groups: []string{ReadOnly}, read: []string{
			inWorkspace, "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt",
		}},
		// The file scope, not the whitelist, says where an intern may write.
		cordon.Intern: {groups: []string{Memory, ProductivityRead, FSWrite}, write: []string{runRoot(runMark)}},
		// An unknown tool's arguments are inferred and scoped like a known
		// one's, so that from here on its name is no reason to refuse it.
		cordon.Supervised: {groups: []string{Browser, ProductivityWrite, Exec, Network, Unknown},
			write: []string{inWorkspace, scratch}, connect: true},
		cordon.Autonomous: {every: true, connect: true},
	}
}

// rightsOf sums the rows up to a tier.
func rightsOf(profile string, tier cordon.Tier) rights {
	var sum rights
	table := tierTable(profile)
	for _, row := range table[:tier+1] {
		sum.every = sum.every || row.every
		sum.connect = sum.connect || row.connect
		sum.groups = append(sum.groups, row.groups...)
		sum.read = append(sum.read, row.read...)
		sum.write = append(sum.write, row.write...)
	}
	return sum
}

// rootsOf turns a tier's rights and the configured extra roots into roots,
// and says whether the run's ID is among them.
func rootsOf(r rights, tier cordon.Tier, workspace string, read, write []string) (roots []Root, perRun bool) {
	add := func(paths []string, writable bool) {
		for _, p := range paths {
			if rest, ok := strings.CutPrefix(p, inWorkspace); ok {
				if workspace == "" {
					continue
				}
				p = workspace + rest
			}
			roots = addRoot(roots, Root{p, writable})
		}
	}
	add(r.read, false)
	add(r.write, true)
	add(read, false)
	// A student changes nothing, wherever it is.
	add(write, tier > cordon.Student)
	roots = dropCovered(roots)
	slices.SortFunc(roots, func(a, b Root) int { return strings.Compare(a.Path, b.Path) })
	return roots, slices.Contains(roots, Root{runRoot(runMark), true})
}

func addRoot(roots []Root, r Root) []Root {
	for i := range roots {
		if roots[i].Path == r.Path {
			roots[i].Write = roots[i].Write || r.Write
			return roots
		}
	}
	return append(roots, r)
}

// dropCovered leaves out the run's own root where all of the scratch is
// writable: the policies of many runs then share one list.
func dropCovered(roots []Root) []Root {
	if !slices.Contains(roots, Root{scratch, true}) {
		return roots
	}
	return slices.DeleteFunc(roots, func(r Root) bool { return r.Path == runRoot(runMark) })
}
