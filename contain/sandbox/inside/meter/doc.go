// Package meter measures what sandboxes write to the disk of a Linux host:
// the upper directories of their overlays, and files that were deleted there
// and are still open.
//
// It guarantees that no link is followed, that nothing is left changed, and
// that what cannot be looked at (too deep, not to be read) counts as too much.
//
// What it does not do: hold anything. What is written between two walks has
// been written; who watches kills then.
package meter
