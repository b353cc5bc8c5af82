package main

// Lines, the local queue and the watches that contenders share.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "names: the owner is looked for where the kind is",
			File: "protocol/name.go",
			Old:  "ok && i == ownerLength+1 && node[ownerLength] == '-'",
			New:  "ok && node[ownerLength:i] == \"-\"",
			Test: "TestParseNameNeverPanics|FuzzParseName",
		},
		{
			Name: "names: numbers after the counter's end stand in line",
			File: "protocol/name.go",
			Old:  "ok && n.Sequence >= 0 {",
			New:  "ok {",
			Test: "TestNumbersAfterTheCountersEndAreNotInLine",
		},
		{
			Name:    "line: anybody's node is taken for ours",
			File:    "protocol/line.go",
			Old:     "isOurs := func(n Name) bool { return n.Owner == c.owner }",
			New:     "isOurs := func(n Name) bool { return n.Owner.Session == c.owner.Session }",
			Package: "./lock",
			Test:    "TestGoroutinesOfOneClientExcludeEachOther",
		},
		{
			Name: "line: order is by name",
			File: "protocol/name.go",
			Old:  "{ return cmp.Compare(n.Sequence, other.Sequence) }",
			New:  "{ return cmp.Compare(n.Node, other.Node) }",
			Test: "TestCompareIsATotalOrder",
		},
		{
			Name:    "line: somebody's data is overwritten",
			File:    "protocol/line.go",
			Old:     "&zk.SetDataRequest{Path: dir, Version: version}",
			New:     "&zk.SetDataRequest{Path: dir, Version: min(version, -1)}",
			Package: "./lock",
			Test:    "TestMutexIsAFairLock/^data_of_the_line/embedded",
		},
		{
			Name:    "line: numbers near the end are taken",
			File:    "protocol/name.go",
			Old:     "const maxSequence = 1<<31 - 1<<20",
			New:     "const maxSequence = 1<<31 - 1",
			Package: "./lock",
			Test:    "TestNumbersNearTheCountersEndAreRefused",
		},
		{
			Name:    "line: a holder whose node was deleted is not told",
			File:    "protocol/grant.go",
			Old:     "g.guard = time.AfterFunc(guardAfter, func() { c.spawn(g.watch) })",
			New:     "g.guard = time.AfterFunc(guardAfter, func() {})",
			Package: "./lock",
			Test:    "TestMutexIsAFairLock/^deleted_node/embedded",
		},
		{
			Name:    "turns: the next one's begins before the last one's is over",
			File:    "protocol/turns.go",
			Old:     "context.AfterFunc(g.life, func() { <-t })",
			New:     "<-t",
			Package: "./lock",
			Test:    "TestGoroutinesThatTakeTurnsHaveOneNode/embedded",
		},
		{
			Name:    "turns: whoever fails keeps its own",
			File:    "protocol/turns.go",
			Old:     "	case g == nil:\n		<-t",
			New:     "	case g == nil:",
			Package: "./lock",
			Test:    "TestFailedCallEndsItsTurn/embedded",
		},
		{
			Name: "watches: each wait sets its own",
			File: "protocol/watch.go",
			Old:  "w != nil {\n		return w\n	}",
			New:  "w != nil && false {\n		return w\n	}",
			Test: "TestThoseWhoWaitForOneNodeShareOneWatch|TestWaitsThatAreGivenUpLeaveNothing",
		},
		{
			Name: "sign: a version that was only seen is taken for one of ours",
			File: "protocol/sign.go",
			Old:  "stat.Mzxid, stat.Version, empty, false, false",
			New:  "stat.Mzxid, stat.Version, empty, true, false",
			Test: "TestDataOfALineThatWasMadeAgainIsKept/.*/embedded",
		},
		{
			Name: "sign: no release sets the version",
			File: "protocol/line.go",
			Old:  "empty && quiet && !own {",
			New:  "empty && quiet && !own && version < 0 {",
			Test: "TestLineThatOthersHaveMadeIsFastInTheEnd/may_be_set/embedded",
		},
		{
			Name: "sign: each release tries to set what it may not",
			File: "protocol/line.go",
			Old:  "	case errors.Is(err, zk.ErrNoAuth):\n		l.sign.close()\n	}",
			New:  "	}",
			Test: "TestLineThatOthersHaveMadeIsFastInTheEnd/may_not_be_set/embedded",
		},
	}...)
}
