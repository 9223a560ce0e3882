// Package integration holds the tests of the cordon binary against parts
// that nobody here wrote: MCP servers and the MCP inspector from npm. They
// stand behind the build tag "integration":
//
//	go test -tags integration ./internal/integration
//
// They need node and npm, and fail where these are missing: what is skipped
// in CI is not tested. What they install is kept in the user's cache, or in
// CORDON_INTEGRATION_DIR where that is set.
//
// What they do not show: how other versions of these peers behave than the
// ones that were installed, which the tests log.
package integration
