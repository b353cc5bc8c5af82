package conn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// ParseConnectString splits "host1:2181,host2/chroot" into addresses with ports, and a chroot
// (empty or an absolute path).
func ParseConnectString(s string) (servers []string, chroot string, err error) {
	hosts := s
	if strings.Contains(s, "://") {
		return nil, "", fmt.Errorf("connect string %q: it has a scheme, and should be host:port,host:port/chroot", s)
	}
	if i := strings.IndexByte(s, '/'); i >= 0 {
		hosts, chroot = s[:i], s[i:]
		if strings.Contains(chroot, ",") {
			return nil, "", fmt.Errorf("connect string %q: a comma behind the chroot, which comes once and last", s)
		}
		// A blank in the middle of a name can be meant. At an end it's a typing error that would
		// lead to another namespace.
		for name := range strings.SplitSeq(chroot, "/") {
			if strings.TrimFunc(name, unseen) != name {
				return nil, "", fmt.Errorf("connect string %q: chroot: %w: white space at an end of %q", s, zk.ErrInvalidPath, name)
			}
		}
		if layout.Reserved(chroot) {
			return nil, "", fmt.Errorf("connect string %q: chroot: %w: it is reserved for ZooKeeper itself", s, zk.ErrInvalidPath)
		}
		if err := layout.ValidatePath(chroot); err != nil {
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

// unseen reports whether r is white space or isn't printed at all.
func unseen(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }

// withPort returns the address of a host, with the default port if it has none. IPv6 addresses can
// be in brackets (with a port they must be).
func withPort(host string) (string, error) {
	if host == "" {
		return "", errors.New("empty server address")
	}

	name, port := host, strconv.Itoa(zk.DefaultPort)
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}

	// An IPv6 address without brackets has colons, but no port.
	_, noIP := netip.ParseAddr(name)
	if strings.ContainsAny(host, ":[]") && noIP != nil {
		var err error
		if name, port, err = net.SplitHostPort(host); err != nil {
			return "", fmt.Errorf("server address %q: %w", host, err)
		}
	}

	n, err := strconv.ParseUint(port, 10, 16)
	_, noIP = netip.ParseAddr(name)
	if err != nil || n == 0 || noIP != nil && !hostName.MatchString(name) {
		return "", fmt.Errorf("server address %q: not a host and a port", host)
	}

	return net.JoinHostPort(name, port), nil
}

// hostName matches the names that hosts can have. So quotes, semicolons between servers and
// variables that weren't expanded are errors before anything is dialled.
var hostName = regexp.MustCompile(`^[0-9A-Za-z._-]+$`)
