package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var networkKinds = map[string]func(args){
	"daemons":  daemons,
	"abstract": abstract,
	"families": families,
	"network":  network,
}

// daemons: each value of a name that begins with "socket" is one to try.
func daemons(a args) {
	paths := []string{
		"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock",
		"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/snapd.socket",
		"/run/user/0/bus", "/run/user/1000/bus", "/run/udev/control", "/tmp/.X11-unix/X0", "/run/libvirt/libvirt-sock", "/dev/log",
	}
	for name, path := range a {
		if strings.HasPrefix(name, "socket") {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		try("dial "+path, func() error { return dial("unix", path) })
	}
	for _, name := range []string{"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"} {
		try("variable "+name, func() error { return refuseUnless(os.Getenv(name) != "") })
	}
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if !strings.HasPrefix(network, "udp") && !strings.HasPrefix(network, "ip") {
		return nil
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, err = c.Read(make([]byte, 16))
	return err
}

func abstract(a args) {
	try("dial a stream", func() error { return dial("unix", "@"+a["stream"]) })
	try("send a datagram", func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: "@" + a["datagram"]})
	})
	try("names in /proc/net/unix", func() error { return holds("/proc/net/unix", a["stream"]) })
}

func families(args) {
	for _, s := range []struct {
		name                string
		family, kind, proto int
	}{
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {"packet", unix.AF_PACKET, unix.SOCK_RAW, 0}, {"packet datagram", unix.AF_PACKET, unix.SOCK_DGRAM, 0},
		{"alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, {"xdp", unix.AF_XDP, unix.SOCK_RAW, 0}, {"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_STREAM, 0},
		{"rds", unix.AF_RDS, unix.SOCK_SEQPACKET, 0}, {"tipc", unix.AF_TIPC, unix.SOCK_STREAM, 0}, {"can", unix.AF_CAN, unix.SOCK_RAW, 1}, {"key", unix.AF_KEY, unix.SOCK_RAW, 2},
		{"kcm", unix.AF_KCM, unix.SOCK_DGRAM, 0}, {"smc", unix.AF_SMC, unix.SOCK_STREAM, 0}, {"qipcrtr", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0},
		{"netlink audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, {"netlink netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"netlink uevent", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, {"netlink connector", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CONNECTOR},
		{"netlink xfrm", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, {"netlink generic", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
		{"netlink crypto", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CRYPTO}, {"netlink diag", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_INET_DIAG},
		{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {"raw 6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6}, {"raw all", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"sctp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, {"mptcp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, {"dccp", unix.AF_INET, 6, 33},
	} {
		try(s.name, func() error { return closing(unix.Socket(s.family, s.kind, s.proto)) })
	}
}

// network: tcp, udp, tcp6, udp6 and host are addresses that answer outside.
func network(a args) {
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "no_proxy", "NO_PROXY"} {
		must(os.Unsetenv(name))
	}
	for _, n := range []string{"tcp", "tcp6", "udp", "udp6"} {
		if a[n] != "" {
			try(n+" to the host's loopback", func() error { return dial(n, a[n]) })
		}
	}
	if a["host"] != "" {
		try("tcp to the host's own address", func() error { return dial("tcp", a["host"]) })
	}
	try("dns by udp", func() error { return dial("udp", a["udp"]) })
	try("dns by name", func() error {
		r := net.Resolver{PreferGo: true}
		ctx, cancel := contextFor(2 * time.Second)
		defer cancel()
		found, err := r.LookupHost(ctx, "example.com")
		note("%v", found)
		if err != nil {
			noteOf = err.Error()
			return errRefused
		}
		return nil
	})
	// Addresses that are kept for documentation, and that of metadata
	// services: where there are walls nothing leaves for them.
	for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "169.254.169.254:80", "[fd00:ec2::254]:80", "224.0.0.1:80"} {
		if a["bare"] == "" {
			try("tcp to "+to, func() error { return dial("tcp", to) })
			try("udp to "+to, func() error { return dial("udp", to) })
		}
	}
	try("ping", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}})
	})
	try("ping 6", func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, []byte{128, 0, 0, 0, 0, 0, 0, 1}, 0, &unix.SockaddrInet6{Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}})
	})
	interfaces, err := net.Interfaces()
	if err == nil {
		n := 0
		for _, i := range interfaces {
			if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
				n++
			}
		}
		try("an interface that leads out", func() error { return refuseUnless(n > 0) })
	}
	say(line{Try: "interfaces", Got: fmt.Sprint(len(interfaces))})
}
