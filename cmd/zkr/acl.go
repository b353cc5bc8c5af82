package main

import (
	"strings"

	"github.com/go-zookeeper/zk"
)

// newACL returns the ACL of new nodes. It returns nil if package protocol should make the ACL from
// the credentials (all permissions for them, and none for others).
func (a *app) newACL(credentials []credential) (acl []zk.ACL, err error) {
	switch {
	case a.acl == "creator" && !a.hasCredentials(), a.acl == "read" && len(credentials) == 0:
		return nil, usagef("--acl %s: needs a credential: see --auth", a.acl)
	case a.acl != "read":
		return parseACL(a.acl)
	}

	// Others can read the nodes too, so the list must name our own identities.
	for _, c := range credentials {
		user, password, _ := strings.Cut(c.id, ":")
		if c.scheme != "digest" {
			return nil, usagef("--acl read: which identity a credential of scheme %s is, is not known: give a list", c.scheme)
		}

		acl = append(acl, zk.DigestACL(zk.PermAll, user, password)...)
	}
	return append(acl, zk.WorldACL(zk.PermRead)...), nil
}

// parseACL parses --acl: one of three words, or a list in the form of zkCli.sh. It returns nil if
// the flag isn't given.
func parseACL(given string) ([]zk.ACL, error) {
	switch given {
	case "", "creator", "read": // see newACL
		return nil, nil
	case "open":
		return zk.WorldACL(zk.PermAll), nil
	}

	var acl []zk.ACL
	for entry := range strings.SplitSeq(given, ",") {
		scheme, rest, _ := strings.Cut(entry, ":")

		// An ID can contain colons (user:hash), so the permissions begin after the last colon.
		end := strings.LastIndexByte(rest, ':')
		if scheme == "auth" { // it can mean more identities than the user asked for
			return nil, usagef("--acl %q: name the identities, or give creator", entry)
		}

		if scheme == "" || end < 0 || end == len(rest)-1 {
			return nil, usagef("--acl %q: must be open, creator, read or scheme:id:permissions, such as world:anyone:cdrwa", entry)
		}

		a := zk.ACL{Scheme: scheme, ID: rest[:end]}
		for _, p := range rest[end+1:] {
			bit := strings.IndexRune("rwcda", p)
			if bit < 0 {
				return nil, usagef("--acl %q: permission %q is unknown: must be of c, d, r, w and a", entry, p)
			}
			a.Perms |= 1 << bit
		}

		acl = append(acl, a)
	}
	return acl, nil
}
