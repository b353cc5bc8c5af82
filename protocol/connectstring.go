package protocol

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// parseConnectString splits "host1:2181,host2/chroot" into addresses with ports and a chroot, which
// is empty or an absolute path.
func parseConnectString(s string) (servers []string, chroot string, err error) {
	hosts := s
	if strings.Contains(s, "://") {
		return nil, "", fmt.Errorf("connect string %q: it has a scheme, and should be host:port,host:port/chroot", s)
	}
	if i := strings.IndexByte(s, '/'); i >= 0 {
		hosts, chroot = s[:i], s[i:]
		if strings.Contains(chroot, ",") && strings.Contains(chroot[strings.IndexByte(chroot, ','):], ":") {
			return nil, "", fmt.Errorf("connect string %q: a server stands behind the chroot, which comes once and last", s)
		}
		if reserved(chroot) {
			return nil, "", fmt.Errorf("connect string %q: chroot: %w: it is reserved for ZooKeeper itself", s, zk.ErrInvalidPath)
		}
		if err := ValidatePath(chroot); err != nil {
			return nil, "", fmt.Errorf("connect string %q: chroot: %w", s, err)
		}
		chroot = strings.TrimSuffix(chroot, "/")
	}

	for host := range strings.SplitSeq(hosts, ",") {
		server, err := withPort(strings.TrimSpace(host))
		if err != nil {
			return nil, "", fmt.Errorf("connect string %q: %w", s, err)
		}
		servers = append(servers, server)
	}
	return servers, chroot, nil
}

// withPort returns the address of a host, with the default port if it has none. IPv6 addresses may
// stand in brackets. One without a port may stand without them.
func withPort(host string) (string, error) {
	if host == "" {
		return "", errors.New("empty server address")
	}

	name, port := host, strconv.Itoa(zk.DefaultPort)
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}
	if strings.ContainsAny(host, ":[]") && net.ParseIP(name) == nil {
		var err error
		if name, port, err = net.SplitHostPort(host); err != nil {
			return "", fmt.Errorf("server address %q: %w", host, err)
		}
	}

	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || name == "" || strings.ContainsAny(name, "[] \t") {
		return "", fmt.Errorf("server address %q: not a host and a port", host)
	}
	return net.JoinHostPort(name, port), nil
}
