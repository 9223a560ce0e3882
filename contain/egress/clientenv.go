package egress

import (
	"net"
	"net/url"
	"strings"
)

// ClientEnv is the environment, as "NAME=value", in which programs use the
// tool proxy at toolProxy: "host:port" or "http://[user:TOKEN@]host:port".
// It is a courtesy, no wall: what ignores it has no network at all. These
// names override what the user's own files say of a proxy, which would not be
// reachable from inside.
//
// Verified against real programs in the integration tests: curl, wget, git,
// npm, pip, the Go toolchain, cargo, Maven. Node's own fetch follows it from
// 22.21 and 24.0 on; older ones cannot be told from outside. A Java program
// gets no token, for the JVM prints the options that it is given this way.
func ClientEnv(toolProxy string) []string {
	proxy := toolProxy
	if !strings.Contains(proxy, "://") {
		proxy = "http://" + proxy
	}
	env := []string{
		// What most programs read. curl and what is built on it take the plain
		// one in lower case only.
		"http_proxy=" + proxy,
		"https_proxy=" + proxy,
		"all_proxy=" + proxy,
		"HTTP_PROXY=" + proxy,
		"HTTPS_PROXY=" + proxy,
		"ALL_PROXY=" + proxy,
		// Nothing can be reached without the proxy, so nothing is exempt.
		"no_proxy=",
		"NO_PROXY=",
		// npm, pnpm and Yarn 1: over what an .npmrc says.
		"npm_config_proxy=" + proxy,
		"npm_config_https_proxy=" + proxy,
		"npm_config_noproxy=",
		// Yarn from 2 on reads nothing else.
		"YARN_HTTP_PROXY=" + proxy,
		"YARN_HTTPS_PROXY=" + proxy,
		// pip: over what a pip.conf says.
		"PIP_PROXY=" + proxy,
		// cargo: over http.proxy of its own and of git's configuration.
		"CARGO_HTTP_PROXY=" + proxy,
		// Node's own http, https and fetch read the variables above only if told.
		"NODE_USE_ENV_PROXY=1",
		// git: over http.proxy of the user's configuration, though not over one
		// for a single URL or remote.
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=http.proxy",
		"GIT_CONFIG_VALUE_0=" + proxy,
	}
	u, err := url.Parse(proxy)
	if err != nil {
		return env
	}
	if u.User != nil {
		// git asks without the token first unless it is told how; that would be
		// a refusal and a row for each.
		env = append(env, "GIT_HTTP_PROXY_AUTHMETHOD=basic")
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return env
	}
	return append(env, "JAVA_TOOL_OPTIONS="+strings.Join(javaOptions(host, port), " "))
}

// javaOptions are the properties by which a JVM and what runs on it, such as
// Maven and Gradle, uses a proxy; no other variable says it. Each JVM prints a
// line about them on its standard error. The last one makes Maven from 3.9 on
// look at them.
func javaOptions(host, port string) []string {
	return []string{
		"-Dhttp.proxyHost=" + host, "-Dhttp.proxyPort=" + port,
		"-Dhttps.proxyHost=" + host, "-Dhttps.proxyPort=" + port,
		"-Dhttp.nonProxyHosts=",
		"-Daether.connector.http.useSystemProperties=true",
	}
}
