-- The ranking of adaptive recovery, for given workloads: exact and repeatable.
-- structure: name, cost of rebuilding, flags; statement: executions before and
-- since the start, structures, and a cost for each set of them that is there
SET extra_float_digits = 0;
-- (none, the first, the second, both, ...).
SET search_path = sofort_test, public;
\pset null -
\set structures 'ARRAY[''a 1000'', ''b 1000'', ''c 500'']'

-- the more often it is used, the earlier; what is not used comes last
SELECT * FROM rank(:structures, ARRAY['90 0 b 11 1', '10 0 a 11 1'], 0.99);
-- the same, whatever the number of statements was
SELECT * FROM rank(:structures, ARRAY['900000 0 b 11 1', '100000 0 a 11 1'], 0.99);
-- seldom but dear comes before often but cheap
SELECT * FROM rank(:structures, ARRAY['90 0 b 2 1', '10 0 a 101 1'], 0.99);
-- a statement that needs none still counts as one
SELECT * FROM rank(:structures, ARRAY['90 0 b 11 1', '10 0 a 11 1', '100 0 - 5'], 0.99);

-- no statistics: what is cheap to rebuild first; nothing has a positive rank
SELECT * FROM rank(:structures, ARRAY[]::text[], 0.99);
-- benefit, but less than it costs to rebuild
SELECT * FROM rank(ARRAY['a 1000', 'b 10'], ARRAY['1 0 a 1.009 1', '1 0 b 1.00001 1'], 0.99);
-- an index with which the planner would do no better
SELECT * FROM rank(:structures, ARRAY['90 0 b 1 2', '10 0 a 11 1'], 0.99);

-- equal ranks: the cheaper first, then the one that was named first
SELECT * FROM rank(ARRAY['z 7', 'y 5', 'x 5'], ARRAY['1 0 z,y,x 9 9 9 9 9 9 9 9'], 0.99);
SELECT * FROM rank(ARRAY['z 3', 'y 1', 'x 1'],
                   ARRAY['1 0 z 1.00003 1', '1 0 y 1.00001 1', '1 0 x 1.00001 1'], 0.99);

-- the workload changes: b was used, a is used since the start
SELECT n, array_agg(structure ORDER BY "position") AS "order"
FROM unnest(ARRAY[0, 1, 68, 69, 1000]) AS n,
     rank(:structures, ARRAY['100 0 b 11 1', format('0 %s a 11 1', n)], 0.99)
GROUP BY n ORDER BY n;
-- alpha 1 does not adapt, alpha 0 forgets at once, 0.5 in between
SELECT alpha, n, array_agg(structure ORDER BY "position") AS "order"
FROM unnest(ARRAY[0, 0.5, 1]) AS alpha, unnest(ARRAY[0, 1, 2, 100000]) AS n,
     rank(:structures, ARRAY['100 0 b 11 1', format('0 %s a 11 1', n)], alpha)
GROUP BY alpha, n ORDER BY alpha, n;
-- nothing is known of the past: what happens now counts, also with alpha 1
SELECT * FROM rank(:structures, ARRAY['0 5 c 11 1', '0 1 a 11 1'], 1);
-- both workloads, weighted: 0.9^2 and 1 - 0.9^2
SELECT structure, round(benefit::numeric, 3) AS benefit
FROM rank(ARRAY['a 0', 'b 0'], ARRAY['4 2 a 1.00001 1', '6 0 b 1.00001 1'], 0.9);

-- dependence on what is there: b and c serve the same statement equally well.
-- Once one of the two is there, a comes before the other
SELECT * FROM rank(:structures, ARRAY['60 0 b,c 11 1 1 1', '40 0 a 11 1'], 0.99);
SELECT * FROM rank(:structures, ARRAY['60 0 b,c 11 1 1 1', '40 0 a 11 1'], 0.99, false);
SELECT * FROM rank(ARRAY['a 1000', 'b 1000 available', 'c 500'],
                   ARRAY['60 0 b,c 11 1 1 1', '40 0 a 11 1'], 0.99);
SELECT * FROM rank(ARRAY['a 1000', 'b 1000 available', 'c 500'],
                   ARRAY['60 0 b,c 11 1 1 1', '40 0 a 11 1'], 0.99, false);
-- what survives a restart counts as there in both functions
SELECT * FROM rank(ARRAY['a 1000', 'b 1000 persistent available', 'c 500'],
                   ARRAY['60 0 b,c 11 1 1 1', '40 0 a 11 1'], 0.99, false);
-- ... also if a part of it is still to be made (of a hybrid index)
SELECT * FROM rank(ARRAY['a 1000', 'b 0 persistent', 'c 500'],
                   ARRAY['60 0 b,c 11 1 1 1', '40 0 a 11 1'], 0.99, false);
-- b helps only together with c: it gains rank when c is there
SELECT * FROM rank(ARRAY['a 1000', 'b 1000', 'c 500'],
                   ARRAY['60 0 b,c 11 11 9 1', '40 0 a 8 1'], 0.99);
-- neither helps alone: each has half of what both gain
SELECT * FROM rank(:structures, ARRAY['60 0 b,c 11 11 11 1', '40 0 a 8 1'], 0.99);
-- ... unless one of them was dropped
SELECT * FROM rank(ARRAY['a 1000', 'b 1000'], ARRAY['60 0 b,gone 11 11 11 1', '40 0 a 8 1'], 0.99);

-- open transactions first, then by rank
SELECT * FROM rank(ARRAY['a 1000', 'b 1000', 'c 500 needed', 'd 100 needed'],
                   ARRAY['90 0 b 11 1', '10 0 a 11 1', '1 0 c 11 1'], 0.99);
-- the best two only; the third is ranked beside them
SELECT * FROM rank(:structures, ARRAY['90 0 b 11 1', '10 0 a 11 1'], 0.99, true, 2);

-- many structures and statements
SELECT array_agg(structure ORDER BY "position") = array_agg(structure ORDER BY structure::int DESC) AS in_order,
       count(*)
FROM rank((SELECT array_agg(i || ' 1') FROM generate_series(1, 100) i),
          (SELECT array_agg(format('%s %s %s 11 1', i, i, i)) FROM generate_series(1, 100) i), 0.99);
