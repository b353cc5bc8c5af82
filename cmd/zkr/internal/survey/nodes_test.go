package survey_test

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// TestNodesAreRecognised makes nodes as our recipes and other libraries do. The name of a
// persistent node begins with a slash. After an equals sign stand a node's data. A node is
// sequential if its name ends in a hyphen, lock__ or READ__. Owners have short names here: U and V
// have UUIDs as Curator has, G has a GUID of zk.Conn, H and I have kazoo's, and O and P are ours.
func TestNodesAreRecognised(t *testing.T) {
	sequential := regexp.MustCompile(`(-|lock__|READ__)$`)
	owner := survey.Owner{Host: "a", PID: 1, Program: "zkr"}
	candidate := owner
	candidate.Candidate = true
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), client(t, srv)
		s := suite.Session(t, c)
		names := strings.NewReplacer(
			"U-", "_c_01234567-89ab-cdef-0123-456789abcdef-", "V-", "_c_11234567-89ab-cdef-0123-456789abcdef-",
			"G-", "_c_0123456789abcdef0123456789abcdef-", "H_", "0123456789abcdef0123456789abcdef_",
			"I_", "1123456789abcdef0123456789abcdef_", "O-", s.NewOwner().String()+"-", "P-", s.NewOwner().String()+"-",
			"=zkr", "="+string(owner.Data()), "=candidate", "="+string(candidate.Data()))
		for i, try := range []struct{ who, nodes, want string }{
			{"Curator's LeaderLatch", "U-latch- V-latch-", "election: holds curator, waits curator"},
			{"Curator's LeaderSelector", "U-lock-=10.0.0.1 V-lock-", "lock or election: holds curator, waits curator"},
			{"Curator's InterProcessSemaphoreV2", "/leases /locks leases/U-lease- locks/V-lock-",
				"semaphore: holds curator, waits curator"},
			{"Curator's DistributedDoubleBarrier", "/ready 01234567-89ab-cdef-0123-456789abcdef",
				"doublebarrier: inside curator"},
			{"kazoo's Election", "H__lock__=me I__lock__", "lock or election: holds kazoo, waits kazoo"},
			{"kazoo's Semaphore", "/=2 0123456789abcdef0123456789abcdef 1123456789abcdef0123456789abcdef",
				"semaphore of 2: holds kazoo, holds kazoo"},
			{"kazoo's DoubleBarrier", "0123456789abcdef0123456789abcdef /ready", "doublebarrier: inside kazoo"},
			{"kazoo's Party", "H__party__", "group: member kazoo"},
			{"zk.Lock", "G-lock-", "lock: holds zk.Lock"},
			{"readers, up to the first writer", "O-read- U-__READ__ P-write- H__rlock__", "rwlock: holds read zkrecipes, " +
				"holds read curator, waits write zkrecipes, waits read kazoo"},
			{"our double barrier", "/process process/O-1-of-2-member- /ready", "doublebarrier of 2: waits zkrecipes"},

			// A lock and an election have the same names, and only their data can tell.
			{"a lock of ours", "O-lock-=zkr", "lock: holds zkrecipes"},
			{"a lock that lingers", "O-linger-lock-", "lock: holds lingers zkrecipes"},
			{"zkr elect", "O-lock-=candidate", "election: holds zkrecipes"},
			{"zkr elect, and a value", "O-lock-=candidate P-lock-=b:80", "election: holds zkrecipes, waits zkrecipes"},
			{"a value, or data of a user's", "O-lock-=a:80", "lock or election: holds zkrecipes"},
			{"without data", "O-lock-", "lock or election: holds zkrecipes"},
			{"both", "O-lock-=zkr P-lock-=candidate", "lock or election: holds zkrecipes, waits zkrecipes"},

			// A node without a live contender is an orphan. Others are unknown.
			{"a persistent node", "/G-lock-", "lock: holds zk.Lock (not ephemeral: it stays when its owner has gone)"},
			{"two nodes", "G-lock- G-lock-",
				"lock: holds zk.Lock, waits zk.Lock (second node of the contender of NODE)"},
			{"another session's", "00000000000000aa-0000000b-lock-",
				"lock or election: holds zkrecipes (its name is of session 0xaa)"},
			{"unknown nodes", "lock- /README me /below below/lock-",
				"lock or election: holds unknown; me is unknown; README is unknown; below is lock or election: holds unknown"},

			// What Kafka has is no recipe, but for its brokers, which are like the members of a
			// group.
			{"Kafka", "controller=1 /controller_epoch=7 /brokers /brokers/ids brokers/ids/1={} /consumers",
				"directory: ; controller is unknown; brokers is directory: ; ids is group: member unknown; " +
					"consumers is leaf: ; controller_epoch is value: "},
		} {
			dir := fmt.Sprintf("%s/%d", root, i)
			suite.Keep(t, c, dir)
			for _, node := range strings.Fields(names.Replace(try.nodes)) {
				name, data, _ := strings.Cut(node, "=")
				name, persistent := strings.CutPrefix(name, "/")
				flags := int32(zk.FlagEphemeral)
				if persistent {
					flags = 0
				}
				if sequential.MatchString(name) {
					flags |= zk.FlagSequence
				}
				if name == "" {
					suite.Got(s.Set(t.Context(), dir, []byte(data), -1))(t)
					continue
				}
				_, err := s.Conn().Create(s.Path(dir+"/"+name), []byte(data), flags, zk.WorldACL(zk.PermAll))
				require.NoError(t, err, try.who)
			}
			assert.Equal(t, try.want, describe(look(t, c, dir)), try.who)
		}
	})
}

// describe returns what a place is for, its contenders, and what else is there.
func describe(p *survey.Place) string {
	text := p.Kind()
	if p.Permits > 0 {
		text += fmt.Sprintf(" of %d", p.Permits)
	}
	var contenders []string
	for _, c := range p.Contenders {
		words := strings.Fields(fmt.Sprint(c.State, " ", c.Mode, " ", c.Library))
		if c.Orphan != "" {
			words = append(words, "("+strings.ReplaceAll(c.Orphan, p.Contenders[0].Node, "NODE")+")")
		}
		contenders = append(contenders, strings.Join(words, " "))
	}
	text += ": " + strings.Join(contenders, ", ")
	for _, u := range p.Unknown {
		text += "; " + u.Node + " is unknown"
	}
	for _, below := range p.Below {
		text += "; " + path.Base(below.Path) + " is " + describe(below)
	}
	return text
}
