//go:build !(integration && linux)

package docker

import "testing"

func run(m *testing.M) int { return m.Run() }
