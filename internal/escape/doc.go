// Package escape holds the tests that try to get out of `cordon run`, one for
// each of the forty kinds of attack on a kernel or a runtime, against every
// runtime, through the front door: the binary that a user starts runs a
// program that attacks. They stand behind the build tag "integration":
//
//	go test -tags integration ./internal/escape
//	go test -tags integration ./internal/escape -run 'TestEscape/native/24'
//
// A kind passes when the attack was tried (the program prints the kernel's
// answer to each try), each answer was a refusal, and a look from outside
// finds the host as it was. Where the attack can be carried out without harm
// it is also run without walls, and must succeed there: an attack that does
// not work proves nothing.
//
// A runtime that this host does not have is skipped with what cordon says
// about it, unless CORDON_ESCAPE_REQUIRE names it ("native,docker,gvisor").
// Docker is the engine that there is, with CORDON_ESCAPE_IMAGE, or one that
// the test starts as root, with an image of this machine's programs.
// CORDON_ESCAPE_DIR is an existing directory to work in, CORDON_ESCAPE_CORDON
// a binary to try instead of this source. As root the native runtime is tried
// a second time as an ordinary user.
//
// What they do not show: that the kernel itself has no hole, and anything
// about an attack that is not in the table.
package escape
