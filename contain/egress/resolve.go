package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Resolver turns a name into its addresses. *net.Resolver is one. The proxy
// asks with network "ip" for names with their trailing dot, so that no search
// domain is tried.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewResolver asks the DNS server at address ("host:port"), or those of the
// system where it is empty.
func NewResolver(address string) (*net.Resolver, error) {
	r := &net.Resolver{PreferGo: true}
	if address == "" {
		return r, nil
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("egress: resolver %q (want an IP address and a port): %w", address, err)
	}
	r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
	return r, nil
}

// maxDials is how many addresses of one answer are tried.
const maxDials = 4

// addrError is an answer that is refused for one of its addresses.
type addrError struct {
	rule string
	addr netip.Addr
	what string
}

func (e *addrError) Error() string { return fmt.Sprintf("it is at %s: %s", e.addr, e.what) }

// errResolve is the kind of a name that could not be resolved.
var errResolve = errors.New("the name was not resolved")

// open resolves a host that the rules allowed, checks every address, and
// dials them in order.
func (p *Proxy) open(ctx context.Context, name string, port uint16) (*net.TCPConn, error) {
	addrs, err := p.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if err := p.checkAddr(netip.AddrPortFrom(a, port)); err != nil {
			return nil, err
		}
	}
	addrs = addrs[:min(len(addrs), maxDials)]
	ctx, cancel := context.WithTimeout(ctx, p.limits.DialTime)
	defer cancel()
	var errs []error
	for _, a := range addrs {
		conn, err := p.dial(ctx, netip.AddrPortFrom(a, port), p.limits.DialTime/time.Duration(len(addrs)))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (p *Proxy) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.limits.ResolveTime)
	defer cancel()
	addrs, err := p.resolver.LookupNetIP(ctx, "ip", name+".")
	if err == nil && len(addrs) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errResolve, err)
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, nil
}

func (p *Proxy) checkAddr(a netip.AddrPort) error {
	if what := p.addrs.refuses(a.Addr()); what != "" {
		return &addrError{RulePrivate, a.Addr(), what}
	}
	if p.isOwn(a) {
		return &addrError{RuleLoop, a.Addr(), "the proxy itself"}
	}
	return nil
}

// dialChecked connects to exactly this address. The check is made again on what
// the kernel is about to be given, and the socket is connected right there: the
// dialer's own connect(2) finds it connected or on its way, and can make
// nothing else of it. Where the answer comes at once, as from a near host,
// that saves waiting for the poller, a third of the time of a dial.
func (p *Proxy) dialChecked(ctx context.Context, to netip.AddrPort, limit time.Duration) (*net.TCPConn, error) {
	d := net.Dialer{
		Timeout:   limit,
		KeepAlive: -1, // a tunnel turns it on
		Control: func(_, address string, raw syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("egress: dialled %q: %w", address, err)
			}
			if a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()); a != to {
				return fmt.Errorf("egress: %v was checked, but %v would be dialled", to, a)
			}
			if err := p.checkAddr(a); err != nil {
				return err
			}
			var connecting error
			if err := raw.Control(func(fd uintptr) { connecting = unix.Connect(int(fd), sockaddr(a)) }); err != nil {
				return err
			}
			switch connecting {
			case nil, unix.EINPROGRESS, unix.EINTR:
				return nil
			}
			return os.NewSyscallError("connect", connecting)
		},
	}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// isOwn reports whether an address is one that the proxy listens on.
func (p *Proxy) isOwn(a netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.own {
		if l.Port() != a.Port() {
			continue
		}
		if l.Addr() == a.Addr() || l.Addr().IsUnspecified() && localAddr(a.Addr()) {
			return true
		}
	}
	return false
}

func localAddr(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	ifaces, err := net.InterfaceAddrs()
	if err != nil {
		return true // better one host too few than a loop
	}
	for _, i := range ifaces {
		if n, ok := i.(*net.IPNet); ok {
			if l, ok := netip.AddrFromSlice(n.IP); ok && l.Unmap() == a {
				return true
			}
		}
	}
	return false
}
