package main

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestACLIsReadAsZooKeepersShellDoes(t *testing.T) {
	acl := suite.Got(parseACL("world:anyone:r,digest:user:aGFzaA=:cdrwa,ip:10.0.0.0/8:rw"))(t)
	assert.Equal(t, []zk.ACL{
		{Perms: zk.PermRead, Scheme: "world", ID: "anyone"},
		{Perms: zk.PermAll, Scheme: "digest", ID: "user:aGFzaA="},
		{Perms: zk.PermRead | zk.PermWrite, Scheme: "ip", ID: "10.0.0.0/8"},
	}, acl)

	for _, bad := range []string{"x", "world:anyone", "world:anyone:", "world:anyone:z", ":a:r", "open,"} {
		assert.Error(t, suite.Err(parseACL(bad)), bad)
	}
}
