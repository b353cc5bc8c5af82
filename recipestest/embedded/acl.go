package embedded

import (
	"crypto/sha1" // the digest scheme is defined with SHA-1
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

const (
	permRead   int32 = 1 << 0
	permWrite  int32 = 1 << 1
	permCreate int32 = 1 << 2
	permDelete int32 = 1 << 3
	permAdmin  int32 = 1 << 4
	permAll          = permRead | permWrite | permCreate | permDelete | permAdmin
)

// Every access check compares every entry with every identity, and one transaction can make tens of
// thousands of checks. So both are limited.
const (
	maxACL        = 128
	maxIdentities = 32
)

// identity is a scheme and an id that the scheme interprets. A client has proved its identities. An
// entry of an access control list demands one.
type identity struct{ scheme, id string }

// acl is one entry of an access control list.
type acl struct {
	perms int32
	identity
}

var (
	openACL     = []acl{{permAll, identity{"world", "anyone"}}}
	readOnlyACL = []acl{{permRead, identity{"world", "anyone"}}}
)

// allowed reports whether the list grants any of perms to one of the ids.
func allowed(list []acl, perms int32, ids []identity) bool {
	for _, a := range list {
		if a.perms&perms == 0 {
			continue
		}
		if a.scheme == "world" && a.id == "anyone" {
			return true
		}
		for _, id := range ids {
			if id.scheme == a.scheme && matches(id, a.id) {
				return true
			}
		}
	}

	// As in the real server, a node without a list is open.
	return len(list) == 0
}

// matches reports whether the identity satisfies the id of an entry with the same scheme.
func matches(id identity, want string) bool {
	switch id.scheme {
	case "digest":
		return id.id == want
	case "ip":
		prefix, ok := parseNetwork(want)
		addr, err := netip.ParseAddr(id.id)
		return ok && err == nil && prefix.Contains(addr)
	}
	return false
}

// resolveACL checks a list that a client wants to set. It removes duplicates, and replaces entries
// of scheme auth with the client's own identities.
func resolveACL(list []acl, ids []identity) ([]acl, zkwire.Code) {
	if len(list) > maxACL {
		return nil, zkwire.CodeInvalidACL
	}

	var resolved []acl
	seen := make(map[acl]struct{}, len(list))
	for _, a := range list {
		if _, duplicate := seen[a]; duplicate {
			continue
		}
		seen[a] = struct{}{}

		switch a.scheme {
		case "world":
			if a.id != "anyone" {
				return nil, zkwire.CodeInvalidACL
			}
			resolved = append(resolved, a)
		case "auth":
			known := false
			for _, id := range ids {
				if id.scheme == "digest" { // an address alone isn't authentication
					known = true
					resolved = append(resolved, acl{a.perms, id})
				}
			}
			if !known {
				return nil, zkwire.CodeInvalidACL
			}
		case "digest":
			// Java's split drops empty parts at the end: "user:hash:" is valid and "user:" isn't.
			if len(strings.Split(strings.TrimRight(a.id, ":"), ":")) != 2 {
				return nil, zkwire.CodeInvalidACL
			}
			resolved = append(resolved, a)
		case "ip":
			if _, ok := parseNetwork(a.id); !ok {
				return nil, zkwire.CodeInvalidACL
			}
			resolved = append(resolved, a)
		default:
			return nil, zkwire.CodeInvalidACL
		}
	}

	// An entry of scheme auth can become many, so the limit is checked again.
	if len(resolved) == 0 || len(resolved) > maxACL {
		return nil, zkwire.CodeInvalidACL
	}
	return resolved, zkwire.CodeOK
}

// maskDigests returns a copy of the list without password hashes, for readers that can't administer
// the node.
func maskDigests(list []acl) []acl {
	masked := slices.Clone(list)
	for i := range masked {
		if user, _, found := strings.Cut(masked[i].id, ":"); found && masked[i].scheme == "digest" {
			masked[i].id = user + ":x"
		}
	}
	return masked
}

// digestIdentity returns the identity proved by the credentials user:password.
func digestIdentity(credentials []byte) identity {
	sum := sha1.Sum(credentials)
	user, _, _ := strings.Cut(string(credentials), ":")
	return identity{"digest", user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// parseNetwork parses the id of an ip entry: an IPv4 address with an optional number of leading
// bits. (The real server doesn't accept IPv6 addresses either.)
func parseNetwork(s string) (netip.Prefix, bool) {
	host, bits, hasBits := strings.Cut(s, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is4() {
		return netip.Prefix{}, false
	}

	n := addr.BitLen()
	if hasBits {
		if n, err = strconv.Atoi(bits); err != nil || n < 0 || n > addr.BitLen() {
			return netip.Prefix{}, false
		}
	}

	return netip.PrefixFrom(addr, n), true
}
