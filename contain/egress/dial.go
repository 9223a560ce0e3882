package egress

import (
	"context"
	"fmt"
	"net"
)

// Dial connects to "host:port" over "tcp" as the CONNECT of a client would be:
// by the same rules, resolver, exceptions and checks of addresses. It is for
// the operator's own programs, such as one that adds keys to model calls. No
// run's bytes are counted and no refusal is recorded: the error says what was
// refused.
func (p *Proxy) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network != "tcp" {
		return nil, fmt.Errorf("egress: network %q (want tcp)", network)
	}
	host, port, err := SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("egress: address %q: %w", address, err)
	}
	name, err := Canonical(host)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	if port == 0 {
		return nil, fmt.Errorf("egress: address %q (want host:port)", address)
	}
	if p.isClosed(nil) {
		return nil, ErrClosed
	}
	rules := p.rules.Load()
	v := rules.connectTo(name, port, false)
	if p.kind == LLMProxy {
		v = rules.llmConnectTo(name, port, false)
	}
	if !v.Allowed {
		return nil, fmt.Errorf("egress: %s is refused: %s", address, v.Why)
	}
	conn, err := p.open(ctx, name, port)
	if err != nil {
		return nil, fmt.Errorf("egress: %s: %w", address, err)
	}
	return conn, nil
}
