package main

// What a server does not take: too much data, containers.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "too large: what this server refuses is sent for ever",
			File: "protocol/retry.go",
			Old:  "if refused && again {",
			New:  "if refused && again && settle == nil {",
			Test: "TestRequestThatThisServerRefusesCostsTwoConnections/embedded",
		},
		{
			Name: "too large: one cut is taken for a refusal",
			File: "protocol/retry.go",
			Old:  "if refused && again {",
			New:  "if refused && (again || true) {",
			Test: "TestOneCutBehindALargeRequestIsNoRefusal",
		},
		{
			Name: "too large: the connection is not tried with less",
			File: "protocol/retry.go",
			Old:  "if refused && settle == nil {",
			New:  "if refused && settle != nil {",
			Test: "TestHangingUpAtEverythingIsNoRefusal",
		},
		{
			Name: "too large: what the server has taken does not count",
			File: "protocol/request.go",
			Old:  "l.refused <= max(suspicious, l.taken)",
			New:  "l.refused <= suspicious",
			Test: "TestHangingUpAtARequestOfAKnownSizeIsNoRefusal",
		},
		{
			Name: "too large: another's request is taken for one's own",
			File: "protocol/request.go",
			Old:  "return s.limits.refused == u.size",
			New:  "return s.limits.refused > 0",
			Test: "TestRefusalCountsForItsOwnRequestOnly/embedded",
		},
		{
			Name: "too large: a request is larger than a server takes",
			File: "protocol/request.go",
			Old:  "if size > maxRequest {",
			New:  "if size > maxRequest+10 {",
			Test: "TestRequestsTooLargeForAnyServerAreNotSent",
		},
		{
			Name: "too large: an ACL has no size",
			File: "protocol/path.go",
			Old:  "n += aclSize(c.acl(path)) + besideData",
			New:  "n += besideData",
			Test: "TestACLCountsTowardsTheSize",
		},
		{
			Name: "containers: an answer that there are none is forgotten",
			File: "protocol/request.go",
			Old:  "l.plain = l.plain || code == zkwire.CodeUnimplemented",
			New:  "l.plain = false",
			Test: "TestServersWithoutContainersAreAskedOnce",
		},
		{
			Name: "containers: a server that hangs up is asked for ever",
			File: "protocol/request.go",
			Old:  "l.plain = l.plain || l.containers > 1",
			New:  "l.plain = false",
			Test: "TestServersThatHangUpAtContainersAreAskedTwice",
		},
		{
			Name: "containers: one cut is taken for an answer",
			File: "protocol/request.go",
			Old:  "l.plain = l.plain || l.containers > 1",
			New:  "l.plain = true",
			Test: "TestParentsAreContainersAfterACut/embedded",
		},
		{
			Name: "containers: ordinary nodes are made instead",
			File: "protocol/connection.go",
			Old:  "		zkwire.SetOp(p, head.Op)\n",
			New:  "",
			Test: "TestParentsAreContainersAfterACut/embedded",
		},
		{
			Name: "data: what is too large is sent",
			File: "protocol/path.go",
			Old:  "n > MaxData {",
			New:  "n > 99*MaxData {",
			Test: "TestOversizedDataIsRefusedBeforeItIsSent",
		},
	}...)
}
