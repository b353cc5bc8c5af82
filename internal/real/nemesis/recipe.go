package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A subject says what the processes do, and how their history is checked.
type subject struct {
	workload func(*worker) workload
	check    func(r *Round, name string) error
}

var recipes = map[string]subject{
	"lock":          {workload: lockWork, check: checkLock},
	linger:          {workload: lingerWork, check: checkLock},
	"simple":        {workload: simpleWork, check: checkLock},
	"rwlock":        {workload: rwlockWork, check: checkRWLock},
	"semaphore":     {workload: semaphoreWork, check: checkSemaphore},
	"election":      {workload: electionWork, check: checkElection},
	"queue":         {workload: queueWork, check: checkQueue},
	"barrier":       {workload: barrierWork, check: checkBarrier},
	"doublebarrier": {workload: doubleBarrierWork, check: checkDoubleBarrier},
	"group":         {workload: groupWork, check: checkGroup},
	"once":          {workload: onceWork, check: checkOnce},
}

// chosen returns the names of recipes in a list. An empty list means all.
func chosen(list string) ([]string, error) {
	if list == "" {
		return slices.Sorted(maps.Keys(recipes)), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if _, ok := recipes[name]; !ok {
			return nil, fmt.Errorf("there is no recipe %q, but %s", name,
				strings.Join(slices.Sorted(maps.Keys(recipes)), ", "))
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("recipe %q is named twice", name)
		}
	}

	return names, nil
}
