package egress

// ClientEnv placeholder replaced by helper
func ClientEnv(toolProxy string) []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"} {
		env = append(env, name+"="+toolProxy)
	}
	return append(env, "NO_PROXY=", "no_proxy=")
}
