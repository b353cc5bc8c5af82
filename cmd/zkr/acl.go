package main

import (
	"strings"

	"github.com/go-zookeeper/zk"
)

var permissions = map[rune]int32{
	'c': zk.PermCreate, 'r': zk.PermRead, 'w': zk.PermWrite, 'd': zk.PermDelete, 'a': zk.PermAdmin,
}

// parseACL reads --acl: one of three words, or a list as zkCli.sh has it. It returns nil if none is
// given.
func parseACL(given string) ([]zk.ACL, error) {
	switch given {
	case "":
		return nil, nil
	case "open":
		return zk.WorldACL(zk.PermAll), nil
	case "creator":
		return zk.AuthACL(zk.PermAll), nil
	case "read":
		return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...), nil
	}

	var acl []zk.ACL
	for entry := range strings.SplitSeq(given, ",") {
		scheme, rest, _ := strings.Cut(entry, ":")
		end := strings.LastIndexByte(rest, ':')
		if scheme == "" || end < 0 || end == len(rest)-1 {
			return nil, usagef("--acl %q: must be open, creator, read or scheme:id:permissions, such as world:anyone:cdrwa", entry)
		}
		a := zk.ACL{Scheme: scheme, ID: rest[:end]}
		for _, p := range rest[end+1:] {
			bit, ok := permissions[p]
			if !ok {
				return nil, usagef("--acl %q: permission %q is unknown: must be of c, d, r, w and a", entry, p)
			}
			a.Perms |= bit
		}
		acl = append(acl, a)
	}
	return acl, nil
}
