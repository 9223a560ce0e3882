//go:build integration && linux

package escape

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var networkKinds = []kind{
	{29, "sockets of daemons are absent", nil, noDaemons},
	{30, "abstract sockets of the host are out of reach", nil, noAbstract},
	{31, "odd socket families are refused", nil, noFamilies},
	{32, "nothing of a network is reached without the proxy", nil, noNetwork},
}

func noDaemons(t *testing.T, p *place) {
	p.dir(0o755, p.home+"/.docker", p.home+"/.docker/run", p.base+"/run", p.base+"/run/user")
	sockets := []string{p.home + "/.docker/run/docker.sock", p.base + "/run/docker.sock", p.base + "/run/user/bus", p.outside + "/agent.sock"}
	attack := []string{"daemons"}
	for i, path := range sockets {
		listener(t, "unix", path)
		p.own(path)
		attack = append(attack, "socket"+string(rune('0'+i))+"="+path)
	}
	p.before = p.surroundings()
	env := []string{"SSH_AUTH_SOCK=" + sockets[3], "DBUS_SESSION_BUS_ADDRESS=unix:path=" + sockets[2], "WAYLAND_DISPLAY=wayland-0", "XDG_RUNTIME_DIR=" + p.base + "/run/user"}
	p.cordon(invocation{attack: attack, env: env}).ended(0).refused(answers{"dial *": "ENOENT ECONNREFUSED EACCES", "variable *": "refused"})
	p.bare(invocation{attack: attack, env: env}).reached("dial "+sockets[0], "dial "+sockets[1], "dial "+sockets[2], "variable SSH_AUTH_SOCK")
	for where, c := range map[string]struct{ dir, flag string }{
		"in the workspace": {p.workspace, ""}, "below a root that is read": {p.base + "/run", "--read"},
	} {
		t.Run("a socket "+where, func(t *testing.T) {
			p := p.in(t)
			path := c.dir + "/app.sock"
			listener(t, "unix", path)
			p.own(path)
			check(t, os.Chmod(path, 0o777))
			defer os.Remove(path)
			i := invocation{attack: []string{"daemons", "socket0=" + path}}
			if c.flag != "" {
				i.flags = []string{c.flag, c.dir}
			}
			p.cordon(i).ended(0).refused(answers{"dial " + path: "ECONNREFUSED ENOENT EACCES EPERM"})
			p.bare(i).reached("dial " + path)
		})
	}
}

func noAbstract(t *testing.T, p *place) {
	listener(t, "unix", "@"+p.word)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(fd)
	check(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + p.word + "-datagram"}))
	attack := []string{"abstract", "stream=" + p.word, "datagram=" + p.word + "-datagram"}
	p.cordon(invocation{attack: attack}).ended(0).refused(answers{"dial a stream": "ECONNREFUSED EPERM", "send a datagram": "ECONNREFUSED EPERM"})
	p.bare(invocation{attack: attack}).reached("dial a stream", "send a datagram", "names in /proc/net/unix")
}

func noFamilies(t *testing.T, p *place) {
	p.cordon(invocation{attack: []string{"families"}}).ended(0).refused(answers{"*": "EPERM EAFNOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT EINVAL ENOSYS EACCES"})
	bare := p.bare(p.harmless(invocation{attack: []string{"families"}}))
	bare.reached("packet", "raw", "netlink uevent")
	bare.saw()
}

// echo answers every datagram.
func echo(t *testing.T, network, address string) string {
	t.Helper()
	c, err := net.ListenPacket(network, address)
	check(t, err)
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
	return c.LocalAddr().String()
}

func noNetwork(t *testing.T, p *place) {
	tcp, udp := listener(t, "tcp", "127.0.0.1:0").Addr().String(), echo(t, "udp", "127.0.0.1:0")
	attack := []string{"network", "tcp=" + tcp, "udp=" + udp}
	want := []string{"tcp to the host's loopback", "udp to the host's loopback", "dns by udp"}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		l.Close()
		attack = append(attack, "tcp6="+listener(t, "tcp", "[::1]:0").Addr().String(), "udp6="+echo(t, "udp", "[::1]:0"))
		want = append(want, "tcp6 to the host's loopback", "udp6 to the host's loopback")
	}
	addresses, err := net.InterfaceAddrs()
	check(t, err)
	for _, a := range addresses {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil && !ip.IsLoopback() {
			attack = append(attack, "host="+listener(t, "tcp", net.JoinHostPort(ip.String(), "0")).Addr().String())
			want = append(want, "tcp to the host's own address")
			break
		}
	}
	env := []string{"http_proxy=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1", "no_proxy=*"}
	r := p.cordon(invocation{attack: attack, env: env}).ended(0)
	r.refused(answers{
		"tcp*": "ECONNREFUSED ENETUNREACH EHOSTUNREACH EADDRNOTAVAIL EACCES EPERM timeout", "udp*": "ECONNREFUSED ENETUNREACH EHOSTUNREACH EADDRNOTAVAIL EACCES EPERM timeout",
		"dns by udp": "ECONNREFUSED ENETUNREACH EPERM EACCES timeout", "dns by name": "refused", "ping*": "ENETUNREACH EHOSTUNREACH EPERM EACCES EADDRNOTAVAIL EPROTONOSUPPORT",
	})
	for _, l := range r.lines {
		if strings.Contains(l.Got, "timeout") {
			t.Logf("%s: %s: there is a route that leads nowhere", l.Try, l.Got)
		}
	}
	p.bare(invocation{attack: append(attack, "bare=1"), env: env}).reached(want...)
}
