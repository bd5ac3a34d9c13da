-- PostgreSQL's index of ids became smaller. SQLite stores every index key whole, so its index stays.
SELECT 1;
