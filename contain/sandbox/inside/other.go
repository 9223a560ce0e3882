//go:build !linux

package inside

// Main does nothing here: there is no first process to become.
func Main() {}
